//! Implements the trait for references, boxes and `Arc`s of devices, so that the code that owns a device and
//! the code that uses it need not hold it in the same way.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::buffer_pool::BufferPool;
use crate::device::{Device, DeviceFuture, DeviceResult};
use crate::extent::Extent;
use crate::limits::DeviceLimits;
use crate::name::{ContentName, DeviceName};

/// Forwards every method, also methods with a default implementation: the device may override them.
macro_rules! forwards_to_its_device {
    ($pointer:ty) => {
        impl<D: Device + ?Sized> Device for $pointer {
            fn below(&self) -> Option<&dyn Device> {
                (**self).below()
            }

            fn capacity(&self) -> u64 {
                (**self).capacity()
            }

            fn limits(&self) -> DeviceLimits {
                (**self).limits()
            }

            fn queue_depth(&self, io_size: usize) -> usize {
                (**self).queue_depth(io_size)
            }

            fn read_depth(&self, io_size: usize) -> usize {
                (**self).read_depth(io_size)
            }

            fn attentions(&self) -> u64 {
                (**self).attentions()
            }

            fn name(&self) -> DeviceResult<Option<DeviceName>> {
                (**self).name()
            }

            fn content_name(&self) -> DeviceResult<Option<ContentName>> {
                (**self).content_name()
            }

            fn leaves(&self) -> Option<String> {
                (**self).leaves()
            }

            fn end_left<'a>(&'a self, left: &'a str) -> DeviceFuture<'a, ()> {
                (**self).end_left(left)
            }

            fn is_settled(&self) -> bool {
                (**self).is_settled()
            }

            fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
                (**self).read_into(offset, buffer)
            }

            fn read_with(
                &self,
                offset: u64,
                len: usize,
                buffers: Arc<dyn BufferPool>,
            ) -> DeviceFuture<'_, BytesMut> {
                (**self).read_with(offset, len, buffers)
            }

            fn read_at(&self, offset: u64, len: usize) -> DeviceFuture<'_, Bytes> {
                (**self).read_at(offset, len)
            }

            fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
                (**self).write_at(offset, pages)
            }

            fn flush(&self) -> DeviceFuture<'_, ()> {
                (**self).flush()
            }

            fn confirm(&self) -> DeviceFuture<'_, ()> {
                (**self).confirm()
            }

            fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
                (**self).discard(offset, len)
            }

            fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
                (**self).write_zeroes(offset, len)
            }

            fn write_allocated_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
                (**self).write_allocated_zeroes(offset, len)
            }

            fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
                (**self).extents(offset, len)
            }

            fn first_extent(&self, offset: u64, len: u64) -> DeviceFuture<'_, Option<Extent>> {
                (**self).first_extent(offset, len)
            }
        }
    };
}

forwards_to_its_device!(&D);
forwards_to_its_device!(Box<D>);
forwards_to_its_device!(Arc<D>);

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the list of forwarded methods with the methods in the source of the trait.
    #[test]
    fn every_method_is_forwarded() {
        let source = |text: &'static str, from: &str, indent: &str| {
            let start = text.find(from).unwrap();
            let lines = text[start..].lines().skip(1).take_while(|line| *line != "}");
            let names = lines.filter_map(|line| line.strip_prefix(indent)?.strip_prefix("fn "));
            names.map(|rest| rest.split(['(', '<']).next().unwrap()).collect::<Vec<_>>()
        };
        let of_trait = source(include_str!("device.rs"), "\npub trait Device", "    ");
        let forwarded = source(include_str!("pointers.rs"), "\nmacro_rules!", "            ");
        assert!(of_trait.len() > 15, "{of_trait:?}");
        assert_eq!(forwarded, of_trait);
    }

    fn needs_a_device(device: impl Device) -> u64 {
        device.capacity()
    }

    #[test]
    fn what_points_to_a_device_is_one() {
        #[derive(Debug)]
        struct Nothing;
        impl Device for Nothing {
            fn capacity(&self) -> u64 {
                7
            }
            fn read_into(&self, _: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
                Box::pin(async { Ok(buffer) })
            }
            fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
                Box::pin(async { Ok(()) })
            }
            fn flush(&self) -> DeviceFuture<'_, ()> {
                Box::pin(async { Ok(()) })
            }
        }
        let (boxed, shared): (Box<dyn Device>, Arc<dyn Device>) =
            (Box::new(Nothing), Arc::new(Nothing));
        assert_eq!(
            [needs_a_device(&Nothing), needs_a_device(boxed), needs_a_device(shared)],
            [7; 3]
        );
    }
}
