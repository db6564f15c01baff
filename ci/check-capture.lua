-- Cuts a TCP stream into iSCSI PDUs and hands each of them alone to Wireshark's own iSCSI dissector.
--
-- Left to itself that dissector gives up the rest of a segment when it stumbles over a SCSI payload, and it takes a data
-- digest that comes in a segment of its own for the next PDU. The lengths here are those of RFC 7143 §11.2; the target's
-- port is the script's argument.
local target_port = tonumber((...))
local iscsi = Dissector.get("iscsi")
local cut = Proto("iscsi_cut", "iSCSI, one PDU at a time")
local login_request, login_response = 0x03, 0x23
local header_length = 48
-- By the initiator's port: which digests its connection agreed on.
local agreed = {}

local function initiator_port(pinfo)
  if pinfo.src_port == target_port then return pinfo.dst_port end
  return pinfo.src_port
end

local function opcode(tvb, offset) return tvb(offset, 1):bitfield(2, 6) end

-- The lengths of the additional headers and of the data segment.
local function lengths(tvb, offset) return tvb(offset + 4, 1):uint() * 4, tvb(offset + 5, 3):uint() end

local function pdu_length(tvb, pinfo, offset)
  local ahs, data = lengths(tvb, offset)
  local length = header_length + ahs + math.ceil(data / 4) * 4
  local code = opcode(tvb, offset)
  if code == login_request or code == login_response then return length end
  local digests = agreed[initiator_port(pinfo)] or {}
  if digests.header then length = length + 4 end
  if digests.data and data > 0 then length = length + 4 end
  return length
end

-- Learns from a target's login answers which digests are on from the full feature phase.
local function note_login(tvb, pinfo)
  local ahs, data = lengths(tvb, 0)
  local code = opcode(tvb, 0)
  local port = initiator_port(pinfo)
  if code == login_request then agreed[port] = agreed[port] or {} end
  if code ~= login_response or data == 0 then return end
  local text = "\0" .. tvb(header_length + ahs, data):raw() .. "\0"
  local digests = agreed[port] or {}
  digests.header = digests.header or text:find("\0HeaderDigest=CRC32C\0", 1, true) ~= nil
  digests.data = digests.data or text:find("\0DataDigest=CRC32C\0", 1, true) ~= nil
  agreed[port] = digests
end

local function one_pdu(tvb, pinfo, tree)
  note_login(tvb, pinfo)
  -- An error here is already shown in the tree, as a malformed packet, before it is raised.
  pcall(iscsi.call, iscsi, tvb, pinfo, tree)
  -- It claims the rest of the conversation for itself when it sees a login.
  pinfo.conversation = cut
  return tvb:len()
end

function cut.dissector(tvb, pinfo, tree)
  dissect_tcp_pdus(tvb, tree, header_length, pdu_length, one_pdu)
  return tvb:len()
end

DissectorTable.get("tcp.port"):add(target_port, cut)
