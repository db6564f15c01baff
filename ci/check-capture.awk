# The rules of an initiator, checked on the decoded PDUs of one capture (see ci/check-capture for the columns).
#
# A frame may hold several PDUs. Then tshark lists the values of each field separated by commas, but a PDU without a
# field has no entry in the list. The table in BEGIN says which opcodes have which fields. A list whose length does
# not match is an error of its own.

BEGIN {
  two32 = 4294967296
  none = "0xffffffff"
  # Requests: the opcodes that carry each field.
  carries("I", "00 01 02 04 06")
  carries("cmdsn", "00 01 02 03 04 06")
  carries("expstatsn", "00 01 02 03 04 05 06 10")
  # Fields of requests and responses.
  carries("ttt", "00 04 05 10 20 24 31")
  carries("itt", "00 01 02 03 04 05 06 10 20 21 22 23 24 25 26 31 32 3f")
  carries("length", "00 01 02 03 04 05 06 10 20 21 22 23 24 25 26 31 32 3f")
  carries("maxcmdsn", "20 21 22 23 24 25 26 31 32 3f")
  carries("datasn", "05 25")
  carries("offset", "05 25 31")
  carries("F", "05 25")
  carries("S", "25")
  carries("desired", "31")
}

function carries(field, opcodes,    list, n, i) {
  n = split(opcodes, list, " ")
  for (i = 1; i <= n; i++) has[field, "0x" list[i]] = 1
}

function fail(rule) {
  printf "frame %s, connection %s: %s\n", $1, stream, rule
  failures++
}

# Serial comparison (RFC 1982): returns whether a comes before b.
function before(a, b,    distance) {
  distance = (b - a + two32) % two32
  return distance > 0 && distance < two32 / 2
}

# Splits the lists of one frame's fields, so that they can be taken one PDU at a time.
function load(field, text) {
  count[field] = text == "" ? 0 : split(text, list, ",")
  taken[field] = 0
  for (i = 1; i <= count[field]; i++) value[field, i] = list[i]
}

function take(field, opcode) {
  if (!((field, opcode) in has)) return ""
  return value[field, ++taken[field]]
}

function load_frame() {
  load("opcode", $8); load("I", $9); load("itt", $10); load("ttt", $11); load("cmdsn", $12); load("expstatsn", $13)
  load("maxcmdsn", $14); load("datasn", $15); load("offset", $16); load("F", $17); load("S", $18); load("length", $19)
  load("desired", $20)
}

# tshark's errors inside a SCSI payload are not errors of the PDU: it fails on VPD pages that are longer than it
# expects.
function malformed(text) {
  gsub(/\[Malformed Packet: SCSI\]|_ws\.malformed|,/, "", text)
  return text != ""
}

function take_pdu(    field) {
  opcode = value["opcode", ++taken["opcode"]]
  for (field in count) if (field != "opcode") pdu[field] = take(field, opcode)
}

function check_frame_came_out_even(    field) {
  for (field in count)
    if (taken[field] != count[field]) fail("the decoder's columns do not align: " field " of " $8)
}

# CmdSN: queued requests have consecutive numbers in wire order. An immediate request carries the next number and does
# not consume it (RFC 7143 §4.2.2.1). Queued requests stay within the window that the target has opened.
function check_cmdsn(    immediate, cmdsn) {
  cmdsn = pdu["cmdsn"]
  immediate = opcode == "0x03" || pdu["I"] == "1" || pdu["I"] == "True"
  if (stream in next_cmdsn && cmdsn != next_cmdsn[stream])
    fail("CmdSN " cmdsn " where " next_cmdsn[stream] " is next")
  if (!immediate && before(max_cmdsn[stream], cmdsn))
    fail("CmdSN " cmdsn " past MaxCmdSN " max_cmdsn[stream])
  next_cmdsn[stream] = immediate ? cmdsn : (cmdsn + 1) % two32
}

# ExpStatSN never decreases (RFC 7143 §4.2.2.2). Before the first answer there is nothing to check.
function check_expstatsn() {
  if (!(stream in answered)) return
  if (stream in expstatsn && before(pdu["expstatsn"], expstatsn[stream]))
    fail("ExpStatSN went back from " expstatsn[stream] " to " pdu["expstatsn"])
  expstatsn[stream] = pdu["expstatsn"]
}

# A task tag may be used again only after its task has been answered (RFC 7143 §11.2.1.8).
function check_task_begins() {
  if (pdu["itt"] == none) return
  if ((stream, pdu["itt"]) in open_task) fail("task tag " pdu["itt"] " used while its task runs")
  open_task[stream, pdu["itt"]] = $1
  if (opcode == "0x06") logout[stream, pdu["itt"]] = 1
}

# Data-Out: numbered from 0 in each sequence up to its final bit, within the range of the R2T (RFC 7143 §11.7).
function check_data_out(    sequence, end) {
  sequence = stream SUBSEP pdu["itt"] SUBSEP pdu["ttt"]
  if (pdu["datasn"] != next_datasn[sequence] + 0)
    fail("DataSN " pdu["datasn"] " where " next_datasn[sequence] + 0 " is next")
  next_datasn[sequence] = pdu["F"] ~ /1|True/ ? 0 : pdu["datasn"] + 1
  if (pdu["ttt"] == none) return
  end = pdu["offset"] + pdu["length"]
  if (!(sequence in asked_from)) fail("Data-Out without an R2T for tag " pdu["ttt"])
  else if (pdu["offset"] + 0 < asked_from[sequence] || end > asked_to[sequence])
    fail("Data-Out of bytes " pdu["offset"] " to " end " outside its R2T")
  else if (pdu["F"] ~ /1|True/ && end != asked_to[sequence])
    fail("Data-Out ends at " end " where its R2T asked up to " asked_to[sequence])
}

function check_request() {
  requests++
  check_expstatsn()
  if (opcode == "0x05") check_data_out()
  else if (opcode != "0x10") {
    check_cmdsn()
    check_task_begins()
  }
}

function note_r2t(    sequence) {
  sequence = stream SUBSEP pdu["itt"] SUBSEP pdu["ttt"]
  asked_from[sequence] = pdu["offset"] + 0
  asked_to[sequence] = pdu["offset"] + pdu["desired"]
}

function ends_task() {
  if (opcode == "0x31" || opcode == "0x32" || opcode == "0x3f") return 0
  return opcode != "0x25" || pdu["S"] ~ /1|True/
}

function note_response() {
  responses++
  answered[stream] = 1
  if (!(stream in max_cmdsn) || before(max_cmdsn[stream], pdu["maxcmdsn"])) max_cmdsn[stream] = pdu["maxcmdsn"]
  if (opcode == "0x3f") fail("the target rejected a PDU")
  if (opcode == "0x31") note_r2t()
  if (!ends_task() || pdu["itt"] == none) return
  if (!((stream, pdu["itt"]) in open_task)) fail("an answer to task " pdu["itt"] ", which nobody asked")
  delete open_task[stream, pdu["itt"]]
}

{
  stream = $2
  if (malformed($4)) fail("malformed PDU")
  if ($5 != "") fail("invalid opcode")
  if ($6 != "") fail("invalid key or value")
  if ($7 != "") fail("the capture has a hole: it acknowledges what is not there")
  streams[stream] = 1
  load_frame()
  while (taken["opcode"] < count["opcode"]) {
    take_pdu()
    if ($3 == port) check_request(); else note_response()
  }
  check_frame_came_out_even()
}

END {
  for (task in open_task) {
    # Some targets end the connection instead of answering. The caller says which ones.
    if (closes && task in logout) continue
    split(task, part, SUBSEP)
    printf "frame %s, connection %s: task %s was never answered\n", open_task[task], part[1], part[2]
    failures++
  }
  for (stream in streams) connections++
  if (!requests || !responses) {
    print "no iSCSI conversation in the capture"
    failures++
  }
  printf "%d connections, %d requests, %d responses, %d faults", connections, requests, responses, failures
  exit failures > 0
}
