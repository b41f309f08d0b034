-- Names MXoE frames (EtherType 0x86DF), Weft card control frames (0x88B5) and frames between Weft cards (0x88B6) in
-- Wireshark and tshark.
--
--   tshark -X lua_script:weft.lua -r capture.pcapng
--   Wireshark: copy this file to the personal Lua plugins folder (Help, About, Folders).
--
-- Frames of hosts with another EtherType (omxd --ether-type): tshark -d ethertype==0xHEX,mxoe; Wireshark: Decode As.
-- Nothing in an MXoE frame says which sizes its sender was given: choose them with the preference mxoe.preset
-- (tshark: -o mxoe.preset:native-9000). Works with Lua 5.2 and later, so without any bit library.

------------------------------------------------------------------------------------------------------------------------
-- MXoE
------------------------------------------------------------------------------------------------------------------------

local mxoe = Proto("mxoe", "Myrinet Express over Ethernet")

-- F: bytes of a full PULL_REPLY, M: of a MEDIUM fragment, N: frames of a pull block.
local PRESETS = {
    [1] = { name = "native-1500", native = true, F = 1468, M = 1452, N = 32 },
    [2] = { name = "native-9000", native = true, F = 8968, M = 8192, N = 32 },
    [3] = { name = "wire", native = false, F = 4096, M = 4096, N = 8 },
}

mxoe.prefs.preset = Pref.enum("Preset", 1, "Mode and sizes that the peers were given", {
    { 1, "native-1500", 1 },
    { 2, "native-9000", 2 },
    { 3, "wire", 3 },
}, false)

local TYPES = {
    [1] = "RAW", [3] = "HOST_QUERY", [4] = "HOST_REPLY", [35] = "TRUC", [36] = "CONNECT", [37] = "TINY", [38] = "SMALL",
    [39] = "MEDIUM", [40] = "RNDV", [41] = "PULL", [42] = "PULL_REPLY", [43] = "NOTIFY", [44] = "NACK_LIB",
    [45] = "NACK_MCP",
}
-- Types that only MX uses.
local FOREIGN = { [2] = true, [32] = true, [33] = true, [34] = true }
local NACKS = { [1] = "bad endpoint", [2] = "endpoint closed", [3] = "bad session", [4] = "bad RDMA window" }
local STATUS = { [0] = "success", [11] = "bad key" }
local PRESET_CODES = { [1] = "wire", [2] = "native-1500", [3] = "native-9000", [4] = "other" }
local FRAGMENTS_MAX = 32
local EXTENSION_WORD = 0x57465431

-- Wireshark takes the list of fields once it is complete.
local f, fields = {}, {}
local function declare(name, make, title, ...)
    f[name] = make("mxoe." .. name, title, ...)
    fields[#fields + 1] = f[name]
end

declare("peer_index", ProtoField.uint16, "Sender's index in the receiver's peer table", base.DEC)
declare("type", ProtoField.uint8, "Type", base.DEC, TYPES, 0x7f)
declare("mark", ProtoField.bool, "Latency-sensitive mark", 8, nil, 0x80)
declare("dst_endpoint", ProtoField.uint8, "Destination endpoint", base.DEC)
declare("src_endpoint", ProtoField.uint8, "Source endpoint", base.DEC)
declare("src_generation", ProtoField.uint8, "Generation of the source (unused)", base.DEC)
declare("seqnum", ProtoField.uint16, "Sequence number with session bits", base.DEC)
declare("seq_number", ProtoField.uint16, "Sequence number", base.DEC, nil, 0x3fff)
declare("seq_session", ProtoField.uint16, "Partner session number", base.DEC, nil, 0xc000)
declare("piggyack", ProtoField.uint16, "Piggybacked acknowledgement", base.DEC)
declare("match_info", ProtoField.uint64, "Match information", base.HEX)
declare("session", ProtoField.uint32, "Session of the receiver", base.HEX)
declare("length", ProtoField.uint32, "Length", base.DEC)
declare("checksum", ProtoField.uint16, "Checksum (usually not filled in)", base.HEX)
declare("data", ProtoField.bytes, "Data")
declare("data_length", ProtoField.uint32, "Bytes of data in this frame", base.DEC)
declare("msg_length", ProtoField.uint32, "Length of the message", base.DEC)
declare("frag_seqnum", ProtoField.uint8, "Fragment", base.DEC)
declare("frag_pipeline", ProtoField.uint8, "Base-2 logarithm of the fragment size", base.DEC)
declare("frag_offset", ProtoField.uint32, "Offset of the fragment", base.DEC)
declare("frag_last", ProtoField.bool, "Last fragment")
declare("rdma_id", ProtoField.uint32, "Region", base.DEC)
declare("rdma_seqnum", ProtoField.uint8, "Use counter of the region", base.DEC)
declare("rdma_offset", ProtoField.uint32, "Offset in the region", base.DEC)
declare("total_length", ProtoField.uint32, "Bytes transferred in all", base.DEC)
declare("handle", ProtoField.uint32, "Pull handle", base.HEX)
declare("handle_slot", ProtoField.uint32, "Slot of the pull", base.DEC, nil, 0xffc00000)
declare("handle_generation", ProtoField.uint32, "Use of the slot", base.DEC, nil, 0x003fffff)
declare("magic", ProtoField.uint32, "Magic", base.HEX)
declare("pull_endpoint", ProtoField.uint8, "Puller's endpoint", base.DEC)
declare("first_frame_offset", ProtoField.uint32, "Bytes skipped in the first frame", base.DEC)
declare("block_length", ProtoField.uint32, "Bytes of this pull block", base.DEC)
declare("frame_index", ProtoField.uint32, "First frame of this pull block", base.DEC)
declare("block_frames", ProtoField.uint32, "Frames of this pull block", base.DEC)
declare("pull_block", ProtoField.uint32, "Pull block", base.DEC)
declare("frame", ProtoField.uint32, "Frame of the pull", base.DEC)
declare("frame_seqnum", ProtoField.uint8, "Number of the frame, modulo 256", base.DEC)
declare("msg_offset", ProtoField.uint32, "Position in the message", base.DEC)
declare("src_session", ProtoField.uint32, "Requester's session", base.HEX)
declare("is_reply", ProtoField.bool, "Reply")
declare("key", ProtoField.uint32, "Connection key", base.HEX)
declare("target_session", ProtoField.uint32, "Replier's session", base.HEX)
declare("recv_seqnum_start", ProtoField.uint16, "Sequence number expected next", base.DEC)
declare("connect_seqnum", ProtoField.uint8, "Number of the connect", base.DEC)
declare("status", ProtoField.uint8, "Status", base.DEC, STATUS)
declare("src_dst_peer_index", ProtoField.uint16, "Receiver's index in the sender's peer table", base.DEC)
declare("extension", ProtoField.uint32, "Extension word", base.HEX)
declare("ext_mark", ProtoField.bool, "Understands the mark", 8, nil, 0x01)
declare("ext_short_ack", ProtoField.bool, "Acknowledges early, takes ranged pulls", 8, nil, 0x02)
declare("ext_block_frames_log2", ProtoField.uint8, "Base-2 logarithm of the frames per pull block", base.DEC)
declare("ext_preset", ProtoField.uint8, "Preset", base.DEC, PRESET_CODES)
declare("truc_type", ProtoField.uint8, "TRUC type", base.HEX, { [0x55] = "acknowledgement" })
declare("ack", ProtoField.uint16, "Acknowledgement", base.DEC)
declare("session_id", ProtoField.uint32, "Session of the receiver, again", base.HEX)
declare("acknum", ProtoField.uint32, "Number of the acknowledgement", base.DEC)
declare("send_seq", ProtoField.uint16, "Sending sequence", base.DEC)
declare("resent", ProtoField.uint8, "Resent", base.DEC)
declare("nack_code", ProtoField.uint8, "Reason", base.DEC, NACKS)
declare("name", ProtoField.string, "Host name")
declare("board", ProtoField.ether, "Announced board")
declare("serial", ProtoField.uint32, "Serial number of the daemon", base.HEX)
mxoe.fields = fields

local e = {
    short = ProtoExpert.new("mxoe.header_too_short", "header too short", expert.group.MALFORMED, expert.severity.ERROR),
    length = ProtoExpert.new("mxoe.bad_length", "bad length", expert.group.MALFORMED, expert.severity.ERROR),
    truncated = ProtoExpert.new("mxoe.truncated", "truncated", expert.group.MALFORMED, expert.severity.ERROR),
    raw = ProtoExpert.new("mxoe.raw_too_large", "raw too large", expert.group.MALFORMED, expert.severity.ERROR),
    invalid = ProtoExpert.new("mxoe.invalid_type", "invalid type", expert.group.MALFORMED, expert.severity.ERROR),
    unknown = ProtoExpert.new("mxoe.unknown_type", "unknown type", expert.group.MALFORMED, expert.severity.ERROR),
    truc = ProtoExpert.new("mxoe.unknown_truc", "unknown TRUC", expert.group.MALFORMED, expert.severity.ERROR),
    nack = ProtoExpert.new("mxoe.unknown_nack", "unknown nack", expert.group.MALFORMED, expert.severity.ERROR),
    replies = ProtoExpert.new("mxoe.bad_replies", "bad replies", expert.group.MALFORMED, expert.severity.ERROR),
    range = ProtoExpert.new("mxoe.bad_range", "bad offset or length", expert.group.MALFORMED, expert.severity.ERROR),
    cut = ProtoExpert.new("mxoe.cut", "cut by the capture", expert.group.UNDECODED, expert.severity.NOTE),
}
local experts = {}
for _, value in pairs(e) do
    experts[#experts + 1] = value
end
mxoe.experts = experts

-- What a dissector of one type works with: t the bytes from the peer index on (body offset 0 is t(2)), tree, the chosen
-- preset, and text for the Info column. Body offsets below are those of the specification.
local function put(c, name, offset, len)
    local range = c.t(2 + offset, len)
    return c.tree:add(f[name], range), range
end

local function u(c, offset, len)
    return c.t(2 + offset, len):uint()
end

local function note(c, name, value)
    c.tree:add(f[name], value):set_generated()
end

local function malformed(c, which)
    c.tree:add_proto_expert_info(which)
    c.text[#c.text + 1] = "[malformed]"
end

-- The data behind a header, unless the frame ends before; false if it does.
local function data(c, offset, len)
    note(c, "data_length", len)
    if c.t:reported_len() - 2 - offset < len then
        malformed(c, e.truncated)
        return false
    end
    local there = math.min(len, c.t:len() - 2 - offset)
    if there > 0 then
        put(c, "data", offset, there)
    end
    return true
end

local function endpoints(c)
    put(c, "dst_endpoint", 1, 1)
    put(c, "src_endpoint", 2, 1)
    put(c, "src_generation", 3, 1)
    c.text[#c.text + 1] = string.format("%d > %d", u(c, 2, 1), u(c, 1, 1))
end

local function say(c, ...)
    c.text[#c.text + 1] = string.format(...)
end

local function seqnum(c, offset)
    local item, range = put(c, "seqnum", offset, 2)
    item:add(f.seq_number, range)
    item:add(f.seq_session, range)
end

-- The handle a puller chose: Open-MX and we put the slot into the upper 10 bits and count its uses in the others.
local function handle(c, offset)
    local item, range = put(c, "handle", offset, 4)
    item:add(f.handle_slot, range)
    item:add(f.handle_generation, range)
end

-- The part that TINY, SMALL, MEDIUM and RNDV have in common.
local function eager_head(c)
    seqnum(c, 8)
    put(c, "piggyack", 10, 2)
    put(c, "match_info", 12, 8)
    put(c, "session", 20, 4)
    say(c, "seq %d ack %d", u(c, 8, 2), u(c, 10, 2))
end

local function eager(length_max)
    return function(c)
        local length = u(c, 4, 2)
        endpoints(c)
        put(c, "length", 4, 2)
        put(c, "checksum", 6, 2)
        eager_head(c)
        say(c, "len %d match 0x%s", length, tostring(c.t(14, 8):bytes()):lower())
        if length > length_max then
            return malformed(c, e.length)
        end
        data(c, 24, length)
    end
end

local function medium(c)
    local length_len = c.preset.native and 4 or 2
    local length, frag, frag_length = u(c, 4, length_len), u(c, 26, 1), u(c, 24, 2)
    endpoints(c)
    put(c, "length", 4, length_len)
    eager_head(c)
    put(c, "frag_seqnum", 26, 1)
    local size = c.preset.M
    local pipeline_ok = true
    if not c.preset.native then
        put(c, "frag_pipeline", 27, 1)
        pipeline_ok = u(c, 27, 1) <= 12
        size = pipeline_ok and 2 ^ u(c, 27, 1) or 0
    end
    put(c, "checksum", 28, 2)
    local offset = math.floor(frag * size)
    say(c, "fragment %d, %d of %d bytes", frag, frag_length, length)
    if frag_length > c.preset.M then
        return malformed(c, e.length)
    end
    if not data(c, 32, frag_length) then
        return
    end
    local placed = pipeline_ok and frag < FRAGMENTS_MAX and length <= size * FRAGMENTS_MAX
        and (offset < length or frag == 0) and frag_length == math.min(size, length - offset)
    if not placed then
        return malformed(c, e.length)
    end
    note(c, "frag_offset", offset)
    note(c, "frag_last", offset + frag_length == length)
    if offset + frag_length == length then
        say(c, "(last)")
    end
end

local function rndv(c)
    endpoints(c)
    put(c, "length", 4, 2)
    put(c, "checksum", 6, 2)
    eager_head(c)
    put(c, "msg_length", 24, 4)
    put(c, "rdma_id", 28, 1)
    put(c, "rdma_seqnum", 29, 1)
    put(c, "rdma_offset", 30, 2)
    say(c, "len %d region %d.%d", u(c, 24, 4), u(c, 28, 1), u(c, 29, 1))
    local length = u(c, 4, 2)
    if length < 8 or length > 128 then
        return malformed(c, e.length)
    end
    -- The first bytes of the message, which endpoints of libfabric's provider send with its announcement.
    data(c, 32, length - 8)
end

-- The magic is the puller's endpoint XOR 0x21071980.
local function magic(c, offset)
    put(c, "magic", offset, 4)
    local value = u(c, offset, 4)
    if math.floor(value / 256) == 0x210719 then
        local endpoint = (value % 256 + 128) % 256
        note(c, "pull_endpoint", endpoint)
        return endpoint
    end
end

local function pull(c)
    endpoints(c)
    put(c, "session", 4, 4)
    put(c, "total_length", 8, 4)
    local at
    if c.preset.native then
        at = { id = 12, id_len = 4, seq = 16, offset = 20, handle = 24, magic = 28, first = 32, block = 36, index = 40, len = 4 }
    else
        at = { id = 12, id_len = 1, seq = 13, offset = 14, handle = 16, magic = 20, first = 24, block = 26, index = 28, len = 2 }
    end
    put(c, "rdma_id", at.id, at.id_len)
    put(c, "rdma_seqnum", at.seq, 1)
    put(c, "rdma_offset", at.offset, at.len)
    handle(c, at.handle)
    magic(c, at.magic)
    put(c, "first_frame_offset", at.first, at.len)
    put(c, "block_length", at.block, at.len)
    put(c, "frame_index", at.index, 4)
    local first, length, index = u(c, at.first, at.len), u(c, at.block, at.len), u(c, at.index, 4)
    say(c, "handle 0x%x, %d bytes from frame %d", u(c, at.handle, 4), length, index)
    local frames = math.ceil((first + length) / c.preset.F)
    if frames > c.preset.N then
        return malformed(c, e.replies)
    end
    if first >= c.preset.F or length == 0 then
        return malformed(c, e.range)
    end
    note(c, "block_frames", frames)
    note(c, "pull_block", math.floor(index / c.preset.N))
    say(c, "(block %d, %d frames)", math.floor(index / c.preset.N), frames)
end

local function pull_reply(c)
    put(c, "frame_seqnum", 1, 1)
    put(c, "msg_offset", 4, 4)
    handle(c, 8)
    local endpoint = magic(c, 12)
    say(c, "handle 0x%x frame %d offset %d len %d", u(c, 8, 4), u(c, 1, 1), u(c, 4, 4), u(c, 2, 2))
    if endpoint then
        say(c, "for %d", endpoint)
    end
    put(c, "length", 2, 2)
    if data(c, 16, u(c, 2, 2)) then
        -- The number on the wire is cut to 8 bits; the position tells the whole one.
        local frame = math.ceil(u(c, 4, 4) / c.preset.F)
        note(c, "frame", frame)
        note(c, "pull_block", math.floor(frame / c.preset.N))
    end
end

local function notify(c)
    endpoints(c)
    put(c, "session", 4, 4)
    put(c, "total_length", 8, 4)
    put(c, "rdma_id", 12, 1)
    put(c, "rdma_seqnum", 13, 1)
    seqnum(c, 18)
    put(c, "piggyack", 20, 2)
    say(c, "seq %d ack %d, %d bytes of region %d.%d", u(c, 18, 2), u(c, 20, 2), u(c, 8, 4), u(c, 12, 1), u(c, 13, 1))
end

local function connect(c)
    endpoints(c)
    put(c, "length", 4, 1)
    seqnum(c, 8)
    put(c, "src_dst_peer_index", 10, 2)
    put(c, "src_session", 16, 4)
    local is_reply = u(c, 26, 1) ~= 0
    c.tree:add(f.is_reply, c.t(28, 1), is_reply)
    if is_reply then
        put(c, "target_session", 20, 4)
        put(c, "status", 28, 1)
        say(c, "reply, %s", STATUS[u(c, 28, 1)] or ("status " .. u(c, 28, 1)))
    else
        put(c, "key", 20, 4)
        say(c, "request")
    end
    put(c, "recv_seqnum_start", 24, 2)
    put(c, "connect_seqnum", 27, 1)
    if u(c, 12, 4) == EXTENSION_WORD then
        local sub = c.tree:add(f.extension, c.t(14, 4)):append_text(" (WFT1)")
        sub:add(f.ext_mark, c.t(7, 1))
        sub:add(f.ext_short_ack, c.t(7, 1))
        sub:add(f.ext_block_frames_log2, c.t(8, 1))
        sub:add(f.ext_preset, c.t(9, 1))
        say(c, "[%s%s]", PRESET_CODES[u(c, 7, 1)] or "?", u(c, 5, 1) % 2 == 1 and ", marks" or "")
    end
    if u(c, 4, 1) < 16 then
        malformed(c, e.length)
    end
end

local function truc(c)
    endpoints(c)
    put(c, "length", 4, 1)
    put(c, "session", 8, 4)
    put(c, "truc_type", 12, 1)
    if u(c, 12, 1) ~= 0x55 then
        return malformed(c, e.truc)
    end
    put(c, "ack", 14, 2)
    put(c, "session_id", 16, 4)
    put(c, "acknum", 20, 4)
    put(c, "send_seq", 24, 2)
    put(c, "resent", 26, 1)
    say(c, "ack %d (no. %d)", u(c, 14, 2), u(c, 20, 4))
    if u(c, 4, 1) < 16 then
        malformed(c, e.length)
    end
end

local function nack(code_max)
    return function(c)
        local code = u(c, 3, 1)
        put(c, "src_endpoint", 1, 1)
        put(c, "src_generation", 2, 1)
        put(c, "nack_code", 3, 1)
        if code_max == 3 then
            put(c, "dst_endpoint", 9, 1)
            put(c, "src_dst_peer_index", 10, 2)
            seqnum(c, 12)
            say(c, "%d > %d seq %d", u(c, 1, 1), u(c, 9, 1), u(c, 12, 2))
        else
            handle(c, 8)
            magic(c, 12)
            say(c, "handle 0x%x", u(c, 8, 4))
        end
        if code < 1 or code > code_max then
            return malformed(c, e.nack)
        end
        say(c, NACKS[code])
    end
end

local function host_query(c)
    put(c, "src_dst_peer_index", 2, 2)
    put(c, "magic", 8, 4)
end

local function host_reply(c)
    host_query(c)
    put(c, "length", 1, 1)
    local length = u(c, 1, 1)
    if length < 1 or length > 80 then
        return malformed(c, e.length)
    end
    if c.t:reported_len() - 18 < length then
        return malformed(c, e.truncated)
    end
    -- Up to its zero, or as far as was announced or captured; what is not plain ASCII is shown as a dot.
    local name = ""
    for at = 18, 18 + math.min(length - 1, c.t:len() - 18) - 1 do
        local byte = c.t(at, 1):uint()
        if byte == 0 then
            break
        end
        name = name .. ((byte < 0x20 or byte > 0x7e or byte == 0x5c) and "." or string.char(byte))
    end
    c.tree:add(f.name, name)
    say(c, "%s", name)
end

local function raw(c)
    if c.t:reported_len() + 14 > 1024 then
        malformed(c, e.raw)
    end
    local there = c.t:len() - 3
    if there > 0 then
        put(c, "data", 1, there)
    end
    -- The announcement of omxoed: 15 zeros, a board address below 2^48, a serial number.
    if there >= 47 and tostring(c.t(3, 17):bytes()) == string.rep("0", 34) then
        put(c, "board", 18, 6)
        put(c, "serial", 24, 4)
        say(c, "board %s, serial 0x%08x", tostring(c.t(20, 6):ether()), u(c, 24, 4))
    end
end

-- Bytes of the body header, and what reads it.
local BODIES = {
    [1] = { 1, raw }, [3] = { 16, host_query }, [4] = { 16, host_reply }, [35] = { 28, truc }, [36] = { 32, connect },
    [37] = { 24, eager(32) }, [38] = { 24, eager(128) }, [39] = { 32, medium }, [40] = { 32, rndv }, [41] = { 44, pull },
    [42] = { 16, pull_reply }, [43] = { 24, notify }, [44] = { 16, nack(3) }, [45] = { 16, nack(4) },
}

function mxoe.dissector(t, pinfo, root)
    pinfo.cols.protocol = "MXoE"
    local tree = root:add(mxoe, t())
    local c = { t = t, tree = tree, preset = PRESETS[mxoe.prefs.preset] or PRESETS[1], text = {} }
    if t:len() >= 2 then
        tree:add(f.peer_index, t(0, 2))
    end
    if t:len() < 3 then
        malformed(c, t:reported_len() < 3 and e.short or e.cut)
        pinfo.cols.info = "[malformed]"
        return t:len()
    end
    local byte = t(2, 1):uint()
    local code, marked = byte % 128, byte >= 128
    tree:add(f.type, t(2, 1))
    tree:add(f.mark, t(2, 1))
    local body = BODIES[code]
    say(c, "%s%s", TYPES[code] or ("type " .. code), marked and " [mark]" or "")
    if not body then
        malformed(c, FOREIGN[code] and e.invalid or e.unknown)
    else
        local needed = 2 + ((code == 41 and not c.preset.native) and 32 or body[1])
        if t:reported_len() < needed then
            malformed(c, e.short)
        elseif t:len() < needed then
            tree:add_proto_expert_info(e.cut)
        else
            body[2](c)
        end
    end
    local text = table.concat(c.text, " ")
    pinfo.cols.info = text
    tree:append_text(", " .. text)
    return t:len()
end

DissectorTable.get("ethertype"):add(0x86df, mxoe)

------------------------------------------------------------------------------------------------------------------------
-- Control frames between a guest and its own card
------------------------------------------------------------------------------------------------------------------------

local ctl = Proto("weftctl", "Weft Card Control")

local OPERATIONS = {
    [1] = "HELLO", [2] = "GET_COALESCING", [3] = "SET_COALESCING", [4] = "GET_COUNTERS", [5] = "GET_STEERING",
    [6] = "SET_STEERING", [7] = "GET_WATCHDOG", [8] = "SET_WATCHDOG", [9] = "ARM_TIMER", [10] = "DISARM_TIMER",
    [11] = "TIMER_EXPIRED", [12] = "JOIN_GROUP", [13] = "LEAVE_GROUP",
    [14] = "GET_GROUPS", [15] = "GET_COPY_ENGINE", [16] = "GET_ADAPTIVE", [17] = "GET_STRATEGIES",
    [18] = "SET_HOST_RECORD",
}
local STRATEGIES = {
    [0] = "disabled", [1] = "timeout", [2] = "open-mx", [3] = "stream", [4] = "adaptive", [5] = "adaptive-open-mx",
    [6] = "adaptive-stream", [255] = "all",
}
local REFUSALS = {
    [0] = "done", [1] = "malformed", [2] = "version", [3] = "operation", [4] = "queue", [5] = "strategy", [6] = "range",
    [7] = "reserved", [8] = "group",
}
local STEERING_MODES = { [0] = "off", [1] = "flow", [2] = "endpoint" }
local STEERING_TABLES = { [0] = "none", [1] = "endpoints", [2] = "indirection" }
local CTL_MAGIC = 0x5743
local CTL_HEADER_LEN = 10
local CTL_FRAME_MAX = 256

local k, ctl_fields = {}, {}
local function declare_ctl(name, make, title, ...)
    k[name] = make("weftctl." .. name, title, ...)
    ctl_fields[#ctl_fields + 1] = k[name]
end

declare_ctl("magic", ProtoField.uint16, "Magic", base.HEX)
declare_ctl("version", ProtoField.uint8, "Version", base.DEC)
declare_ctl("operation", ProtoField.uint8, "Operation", base.DEC, OPERATIONS, 0x7f)
declare_ctl("reply", ProtoField.bool, "Reply", 8, nil, 0x80)
declare_ctl("id", ProtoField.uint16, "Identifier", base.DEC)
declare_ctl("status", ProtoField.uint16, "Status", base.DEC, REFUSALS)
declare_ctl("body_length", ProtoField.uint16, "Bytes of the body", base.DEC)
declare_ctl("reason", ProtoField.string, "Reason")
declare_ctl("version_min", ProtoField.uint8, "Lowest version spoken", base.DEC)
declare_ctl("version_max", ProtoField.uint8, "Highest version spoken", base.DEC)
declare_ctl("queue_pairs", ProtoField.uint16, "Receive queues", base.DEC)
declare_ctl("abilities", ProtoField.uint32, "Abilities", base.HEX)
declare_ctl("strategies", ProtoField.uint32, "Strategies", base.HEX)
declare_ctl("delay_ns_max", ProtoField.uint32, "Longest delay (ns)", base.DEC)
declare_ctl("frames_max_max", ProtoField.uint32, "Greatest count limit", base.DEC)
declare_ctl("queue", ProtoField.uint16, "Queue", base.DEC, { [0xffff] = "all" })
declare_ctl("changes", ProtoField.uint8, "What changes", base.HEX)
declare_ctl("strategy", ProtoField.uint8, "Strategy", base.DEC, STRATEGIES)
declare_ctl("strategies_total", ProtoField.uint8, "Strategies of the card", base.DEC)
declare_ctl("strategies_told", ProtoField.uint8, "Names that follow", base.DEC)
declare_ctl("strategy_name", ProtoField.string, "Name")
declare_ctl("record_key", ProtoField.uint32, "Key of the host's record (0 = none)", base.HEX)
declare_ctl("record_address", ProtoField.uint64, "Address of the host's record", base.HEX)
declare_ctl("record_is_read", ProtoField.uint8, "The record is read", base.DEC)
declare_ctl("record_exact", ProtoField.uint64, "State of the host known exactly", base.DEC)
declare_ctl("record_inferred", ProtoField.uint64, "Inferred: no record", base.DEC)
declare_ctl("record_unreachable", ProtoField.uint64, "Inferred: the record is unreachable", base.DEC)
declare_ctl("record_replaced", ProtoField.uint64, "Inferred: something else is in its place", base.DEC)
declare_ctl("record_refused", ProtoField.uint64, "Records refused", base.DEC)
declare_ctl("delay_ns", ProtoField.uint32, "Delay (ns)", base.DEC)
declare_ctl("frames_max", ProtoField.uint32, "Count limit (0 = none)", base.DEC)
declare_ctl("marks", ProtoField.uint8, "Marks looked at", base.DEC)
declare_ctl("steering_mode", ProtoField.uint8, "Steering", base.DEC, STEERING_MODES)
declare_ctl("steering_even", ProtoField.uint8, "Spread evenly", base.HEX)
declare_ctl("queues_ready", ProtoField.uint16, "Receive queues in use", base.DEC)
declare_ctl("table", ProtoField.uint8, "Table", base.DEC, STEERING_TABLES)
declare_ctl("entries", ProtoField.uint8, "Number of entries", base.DEC)
declare_ctl("first_entry", ProtoField.uint16, "First entry", base.DEC)
declare_ctl("entry_queues", ProtoField.bytes, "Queues of the entries")
declare_ctl("by_endpoint", ProtoField.uint64, "Frames steered by endpoint", base.DEC)
declare_ctl("by_flow", ProtoField.uint64, "Frames steered by flow", base.DEC)
declare_ctl("to_first", ProtoField.uint64, "Frames to the first queue", base.DEC)
declare_ctl("group", ProtoField.uint16, "Group", base.DEC)
declare_ctl("members", ProtoField.uint16, "Members", base.DEC)
declare_ctl("adapts", ProtoField.uint8, "Adaptive moderation decides", base.DEC)
declare_ctl("packets_per_s", ProtoField.uint64, "Packets per second", base.DEC)
declare_ctl("longer", ProtoField.uint64, "Delay made longer", base.DEC)
declare_ctl("shorter", ProtoField.uint64, "Delay made shorter", base.DEC)

declare_ctl("delay_ns_min", ProtoField.uint32, "Shortest delay (ns)", base.DEC)
declare_ctl("timer", ProtoField.uint16, "Timer", base.DEC, { [0xffff] = "none" })
declare_ctl("timer_kind", ProtoField.uint8, "Kind", base.DEC, { [0] = "once", [1] = "clock" })
declare_ctl("time_ns", ProtoField.uint32, "Time (ns)", base.DEC)
declare_ctl("is_armed", ProtoField.uint8, "Armed", base.DEC)
declare_ctl("armed_now", ProtoField.uint8, "Timers armed now", base.DEC)
declare_ctl("shortest_ns", ProtoField.uint32, "Shortest time (ns)", base.DEC)
declare_ctl("longest_ns", ProtoField.uint32, "Longest time (ns)", base.DEC)
declare_ctl("late_ns", ProtoField.uint32, "Late (ns)", base.DEC)
declare_ctl("ring", ProtoField.uint64, "Ring", base.DEC)

local LATENESS = { "late_max_ns" }
for bucket = 0, 10 do
    LATENESS[#LATENESS + 1] = string.format("late.%d", 2 ^ bucket)
end
LATENESS[#LATENESS + 1] = "late.more"
local WATCHDOG_COUNTERS =
    { "started", "cancelled", "restarted_disabled", "restarted_progress", "restarted_pending", "fired" }
local TIMER_COUNTERS =
    { "armed", "disarmed", "rung_once", "lost", "clock_idle", "clock_polled", "clock_rung", "clock_missed" }
for _, names in ipairs({ LATENESS, WATCHDOG_COUNTERS, TIMER_COUNTERS }) do
    for _, name in ipairs(names) do
        declare_ctl(name, ProtoField.uint64, (name:gsub("[_.]", " ")), base.DEC)
    end
end

local COUNTERS = {
    "packets", "bytes", "marked", "announced", "discarded", "refused_full", "deferred", "suppressed", "signalled",
    "decided.every_packet", "decided.mark", "decided.timeout", "decided.count", "decided.deferred", "decided.watchdog",
    "decided.adaptive", "decided.restart", "packets_per_interrupt.0", "packets_per_interrupt.1", "packets_per_interrupt.2",
    "packets_per_interrupt.3", "packets_per_interrupt.5", "packets_per_interrupt.9", "packets_per_interrupt.17",
    "packets_per_interrupt.33", "packets_per_interrupt.65",
    -- Since the first version; an older card's reply ends before.
    "decided.clock", "polled",
}
for _, name in ipairs(COUNTERS) do
    declare_ctl(name, ProtoField.uint64, (name:gsub("[_.]", " ")), base.DEC)
end
local GROUP_COUNTERS = {
    "sent", "forwarded", "delivered", "duplicates", "missed", "no_buffer", "group_refused", "waited", "given_up",
}
for _, name in ipairs(GROUP_COUNTERS) do
    declare_ctl(name, ProtoField.uint64, (name:gsub("_", " ")), base.DEC)
end
declare_ctl("copy.mtu", ProtoField.uint32, "Longest frame (bytes)", base.DEC)
declare_ctl("copy.queue_max", ProtoField.uint16, "Copies that may be in progress", base.DEC)
declare_ctl("copy.queued", ProtoField.uint16, "Copies in progress", base.DEC)
declare_ctl("copy.submit_ns", ProtoField.uint32, "Cost of a submission (ns)", base.DEC)
local COPY_LIST = { { "copy.mtu", 4 }, { "copy.queue_max", 2 }, { "copy.queued", 2 }, { "copy.submit_ns", 4 }, { "", 4 } }
for _, name in ipairs({
    "submitted", "submitted_bytes", "frames", "moved_bytes", "notifications", "completed", "failed", "cancelled", "host_ns",
    "queue_peak", "refused.queue_full", "refused.overlap", "refused.empty", "refused.range", "refused.misaligned",
}) do
    declare_ctl("copy." .. name, ProtoField.uint64, "copy " .. name:gsub("[_.]", " "), base.DEC)
    COPY_LIST[#COPY_LIST + 1] = { "copy." .. name, 8 }
end
ctl.fields = ctl_fields

local ctl_malformed =
    ProtoExpert.new("weftctl.malformed", "malformed control frame", expert.group.MALFORMED, expert.severity.ERROR)
local ctl_refused = ProtoExpert.new("weftctl.refused", "refused", expert.group.RESPONSE_CODE, expert.severity.WARN)
ctl.experts = { ctl_malformed, ctl_refused }

-- Offsets are those of the body; a reply may say more than is known here, a request may not.
local function list(tree, b, names)
    local at = 0
    for _, entry in ipairs(names) do
        if at + entry[2] > b:len() then
            return
        end
        if entry[1] ~= "" then
            tree:add(k[entry[1]], b(at, entry[2]))
        end
        at = at + entry[2]
    end
end

local SETTINGS = { { "queue", 2 }, { "strategy", 1 }, { "marks", 1 }, { "delay_ns", 4 }, { "frames_max", 4 } }
local STEERING = {
    { "steering_mode", 1 }, { "steering_even", 1 }, { "queue_pairs", 2 }, { "queues_ready", 2 }, { "table", 1 }, { "entries", 1 },
    { "first_entry", 2 }, { "", 2 }, { "by_endpoint", 8 }, { "by_flow", 8 }, { "to_first", 8 }, { "entry_queues", 128 },
}
local COUNTER_LIST = { { "queue", 2 }, { "strategy", 1 }, { "", 1 } }
for _, name in ipairs(COUNTERS) do
    COUNTER_LIST[#COUNTER_LIST + 1] = { name, 8 }
end
local function with_counters(head, ...)
    for _, names in ipairs({ ... }) do
        for _, name in ipairs(names) do
            head[#head + 1] = { name, 8 }
        end
    end
    return head
end
local WATCHDOG = with_counters(
    { { "queue", 2 }, { "", 2 }, { "delay_ns", 4 }, { "delay_ns_min", 4 }, { "delay_ns_max", 4 } }, WATCHDOG_COUNTERS, LATENESS)
local TIMERS = with_counters(
    { { "timer", 2 }, { "is_armed", 1 }, { "armed_now", 1 }, { "shortest_ns", 4 }, { "longest_ns", 4 }, { "", 4 } },
    TIMER_COUNTERS, LATENESS)
local GROUP_LIST = { { "group", 2 }, { "members", 2 }, { "", 4 } }
for _, name in ipairs(GROUP_COUNTERS) do
    GROUP_LIST[#GROUP_LIST + 1] = { name, 8 }
end
local REQUESTS = {
    [1] = { 4, { { "version_min", 1 }, { "version_max", 1 }, { "", 2 } } },
    [2] = { 4, { { "queue", 2 }, { "", 2 } } },
    [3] = { 16, { { "queue", 2 }, { "changes", 1 }, { "strategy", 1 }, { "delay_ns", 4 }, { "frames_max", 4 }, { "marks", 1 }, { "", 3 } } },
    [4] = { 4, { { "queue", 2 }, { "strategy", 1 }, { "", 1 } } },
    [5] = { 4, { { "table", 1 }, { "", 1 }, { "first_entry", 2 } } },
    [6] = { 136, { { "changes", 1 }, { "steering_mode", 1 }, { "table", 1 }, { "entries", 1 }, { "first_entry", 2 }, { "", 2 }, { "entry_queues", 128 } } },
    [7] = { 4, { { "queue", 2 }, { "", 2 } } },
    [8] = { 8, { { "queue", 2 }, { "", 2 }, { "delay_ns", 4 } } },
    [9] = { 8, { { "timer", 2 }, { "timer_kind", 1 }, { "", 1 }, { "time_ns", 4 } } },
    [10] = { 4, { { "timer", 2 }, { "", 2 } } },
    [12] = { 4, { { "group", 2 }, { "", 2 } } },
    [13] = { 4, { { "group", 2 }, { "", 2 } } },
    [14] = { 4, { { "group", 2 }, { "", 2 } } },
    [15] = { 4, { { "", 4 } } },
    [16] = { 4, { { "queue", 2 }, { "", 2 } } },
    [17] = { 4, { { "strategy", 1 }, { "", 3 } } },
    [18] = { 16, { { "queue", 2 }, { "", 2 }, { "record_key", 4 }, { "record_address", 8 } } },
}
local REPLIES = {
    [1] = { 20, { { "version", 1 }, { "", 1 }, { "queue_pairs", 2 }, { "abilities", 4 }, { "strategies", 4 }, { "delay_ns_max", 4 }, { "frames_max_max", 4 } } },
    [2] = { 12, SETTINGS },
    [3] = { 12, SETTINGS },
    [4] = { 212, COUNTER_LIST },
    [5] = { 164, STEERING },
    [6] = { 164, STEERING },
    [7] = { 168, WATCHDOG },
    [8] = { 168, WATCHDOG },
    [9] = { 184, TIMERS },
    [10] = { 184, TIMERS },
    [11] = { 16, { { "timer", 2 }, { "timer_kind", 1 }, { "", 1 }, { "late_ns", 4 }, { "ring", 8 } } },
    [12] = { 80, GROUP_LIST },
    [13] = { 80, GROUP_LIST },
    [14] = { 80, GROUP_LIST },
    [16] = { 40, { { "queue", 2 }, { "strategy", 1 }, { "adapts", 1 }, { "delay_ns_max", 4 }, { "delay_ns", 4 }, { "", 4 }, { "packets_per_s", 8 }, { "longer", 8 }, { "shorter", 8 } } },
    [15] = { 16 + 15 * 8, COPY_LIST },
    [17] = { 4, { { "strategies_total", 1 }, { "strategy", 1 }, { "strategies_told", 1 }, { "", 1 } } },
    [18] = { 48, { { "queue", 2 }, { "record_is_read", 1 }, { "", 1 }, { "", 4 }, { "record_exact", 8 }, { "record_inferred", 8 }, { "record_unreachable", 8 }, { "record_replaced", 8 }, { "record_refused", 8 } } },
}

-- The names in a reply to GET_STRATEGIES, each behind its length; how many were there.
local function strategy_names(tree, t)
    local at, names = 4, {}
    while at < t:len() and #names < t(2, 1):uint() do
        local length = t(at, 1):uint()
        if at + 1 + length > t:len() then
            break
        end
        tree:add(k.strategy_name, t(at + 1, length))
        names[#names + 1] = t(at + 1, length):string()
        at = at + 1 + length
    end
    return names
end

function ctl.dissector(t, pinfo, root)
    -- The EtherType is free for experiments: frames without the magic belong to other programs.
    if t:len() < CTL_HEADER_LEN or t(0, 2):uint() ~= CTL_MAGIC then
        return 0
    end
    pinfo.cols.protocol = "WEFTCTL"
    local tree = root:add(ctl, t())
    tree:add(k.magic, t(0, 2))
    tree:add(k.version, t(2, 1))
    tree:add(k.operation, t(3, 1))
    tree:add(k.reply, t(3, 1))
    tree:add(k.id, t(4, 2))
    tree:add(k.status, t(6, 2))
    tree:add(k.body_length, t(8, 2))
    local code, is_reply = t(3, 1):uint() % 128, t(3, 1):uint() >= 128
    local status, length = t(6, 2):uint(), t(8, 2):uint()
    local text = string.format("%s %s, id %d", OPERATIONS[code] or ("operation " .. code), is_reply and "reply" or "request", t(4, 2):uint())
    local function bad(sentence)
        tree:add_proto_expert_info(ctl_malformed, sentence)
        text = text .. " [malformed]"
    end
    if t:reported_len() + 14 > CTL_FRAME_MAX then
        bad("longer than a control frame may be")
    elseif t:reported_len() - CTL_HEADER_LEN < length then
        bad("the body is longer than the frame")
    elseif t:len() - CTL_HEADER_LEN < length then
        text = text .. " (cut by the capture)"
    elseif is_reply and status ~= 0 then
        local reason = length > 0 and t(CTL_HEADER_LEN, length):string() or ""
        if length > 0 then
            tree:add(k.reason, t(CTL_HEADER_LEN, length))
        end
        tree:add_proto_expert_info(ctl_refused)
        text = text .. ": refused, " .. reason
    else
        local shape = (is_reply and REPLIES or REQUESTS)[code]
        if t(2, 1):uint() ~= 1 and not is_reply then
            bad("not version 1")
        elseif not is_reply and status ~= 0 then
            bad("the status of a request must be zero")
        elseif not shape then
            bad("unknown operation")
        elseif (is_reply and length < shape[1]) or (not is_reply and length ~= shape[1]) then
            bad("the body does not have the length of this operation")
        else
            list(tree, t(CTL_HEADER_LEN, length), shape[2])
            if code == 17 and is_reply then
                local names = strategy_names(tree, t(CTL_HEADER_LEN, length))
                text = text .. ", " .. table.concat(names, ", ")
                if #names < t(CTL_HEADER_LEN + 2, 1):uint() then
                    bad("the names do not fit the body")
                end
            end
            local strategy = ({ [2] = is_reply and 2, [3] = is_reply and 2 or 3, [4] = 2, [16] = is_reply and 2 })[code]
            if strategy then
                local value = t(CTL_HEADER_LEN + strategy, 1):uint()
                text = text .. ", " .. (STRATEGIES[value] or ("strategy " .. value))
            end
        end
    end
    pinfo.cols.info = text
    tree:append_text(", " .. text)
    return t:len()
end

DissectorTable.get("ethertype"):add(0x88b5, ctl)

-- Frames of LCI (docs/spec/lci-wire.md). They have the EtherType of frames between cards, and another magic.
local lci = Proto("weftlci", "Weft Low-level Communication Interface")
local LCI_MAGIC = 0x4c43
local LCI_LINK_LEN = 38
local LCI_GROUP_LEN = 66
local LCI_KINDS = {
    [0] = "HELLO", [1] = "ACK", [2] = "UNICAST", [3] = "MULTICAST", [4] = "STABLE",
    [5] = "JOIN", [6] = "GROUP", [7] = "GONE", [8] = "BYE",
}
local LCI_SHORT = { [1] = true, [2] = true, [8] = true }
local l = {
    magic = ProtoField.uint16("weftlci.magic", "Magic", base.HEX),
    version = ProtoField.uint8("weftlci.version", "Version", base.DEC),
    kind = ProtoField.uint8("weftlci.kind", "Kind", base.DEC, LCI_KINDS),
    answer = ProtoField.bool("weftlci.answer", "Answer without delay", 8, nil, 0x01),
    from = ProtoField.uint8("weftlci.from", "From node", base.DEC),
    to = ProtoField.uint8("weftlci.to", "To node", base.DEC),
    job = ProtoField.uint16("weftlci.job", "Job", base.DEC),
    payload_length = ProtoField.uint16("weftlci.payload_length", "Bytes of the payload", base.DEC),
    session = ProtoField.uint32("weftlci.session", "Session", base.HEX),
    peer_session = ProtoField.uint32("weftlci.peer_session", "Session of the receiver", base.HEX),
    sequence = ProtoField.uint32("weftlci.sequence", "Sequence", base.DEC),
    ack = ProtoField.uint32("weftlci.ack", "Acknowledgement", base.DEC),
    selective = ProtoField.uint64("weftlci.selective", "Selective acknowledgement", base.HEX),
    group = ProtoField.uint32("weftlci.group", "Group", base.DEC),
    number = ProtoField.uint32("weftlci.number", "Number", base.DEC),
    origin = ProtoField.uint8("weftlci.origin", "Origin", base.DEC),
    nodes = ProtoField.bytes("weftlci.nodes", "Nodes"),
    payload = ProtoField.bytes("weftlci.payload", "Payload"),
}
local lci_fields = {}
for _, field in pairs(l) do
    lci_fields[#lci_fields + 1] = field
end
lci.fields = lci_fields
local lci_malformed =
    ProtoExpert.new("weftlci.malformed", "malformed frame of LCI", expert.group.MALFORMED, expert.severity.ERROR)
lci.experts = { lci_malformed }

-- Adds what there is from the magic word on to the tree; returns it in words, or nothing if it is not of LCI.
local function dissect_lci(t, pinfo, root)
    if t:len() < LCI_LINK_LEN or t(0, 2):uint() ~= LCI_MAGIC then
        return nil
    end
    pinfo.cols.protocol = "LCI"
    local tree = root:add(lci, t())
    local function put(field, at, len)
        tree:add(field, t(at, len))
        return t(at, len)
    end
    put(l.magic, 0, 2)
    local version = put(l.version, 2, 1):uint()
    local kind = put(l.kind, 3, 1):uint()
    put(l.answer, 4, 1)
    local from = put(l.from, 5, 1):uint()
    local to = put(l.to, 6, 1):uint()
    put(l.job, 8, 2)
    local length = put(l.payload_length, 10, 2):uint()
    put(l.session, 14, 4)
    put(l.peer_session, 18, 4)
    local sequence = put(l.sequence, 22, 4):uint()
    local ack = put(l.ack, 26, 4):uint()
    put(l.selective, 30, 8)
    local text = (LCI_KINDS[kind] or ("kind " .. kind)) .. ", " .. from .. " to " .. to
    local header = LCI_SHORT[kind] and LCI_LINK_LEN or LCI_GROUP_LEN
    local malformed = version ~= 1 or not LCI_KINDS[kind] or header + length > t:reported_len()
    if kind >= 2 and kind <= 8 then
        text = text .. ", sequence " .. sequence
    end
    text = text .. ", acknowledges below " .. ack
    if header == LCI_GROUP_LEN and t:len() >= LCI_GROUP_LEN then
        local group = put(l.group, 38, 4):uint()
        local number = put(l.number, 42, 4):uint()
        local origin = put(l.origin, 46, 1):uint()
        put(l.nodes, 50, 16)
        if kind == 3 or kind == 4 then
            text = text .. ", group " .. group .. ", number " .. number .. " of node " .. origin
        elseif kind == 6 then
            text = text .. ", group " .. group
        elseif kind == 7 then
            text = text .. ", node " .. origin
        end
    end
    if malformed then
        tree:add_proto_expert_info(lci_malformed)
        text = text .. " [malformed]"
    elseif length > 0 and header + length <= t:len() then
        put(l.payload, header, length)
    end
    tree:append_text(", " .. text)
    return text
end

function lci.dissector(t, pinfo, root)
    local text = dissect_lci(t, pinfo, root)
    if not text then
        return 0
    end
    pinfo.cols.info = text
    return t:len()
end

-- Copies by a card that is wired to itself: each frame is data that comes back into other memory.
local copy = Proto("weftcopy", "Weft Copy by the Card")
local COPY_MAGIC = 0x5743
local COPY_HEADER_LEN = 50
local COPY_VALUE_LEN = 8
local c = {
    magic = ProtoField.uint16("weftcopy.magic", "Magic", base.HEX),
    version = ProtoField.uint8("weftcopy.version", "Version", base.DEC),
    notifies = ProtoField.bool("weftcopy.notifies", "Ends with a notification value", 8, nil, 0x01),
    index = ProtoField.uint16("weftcopy.index", "Receive chain", base.DEC),
    data = ProtoField.bytes("weftcopy.data", "Data"),
    value = ProtoField.uint64("weftcopy.value", "Notification value", base.HEX),
}
local copy_fields = {}
for _, field in pairs(c) do
    copy_fields[#copy_fields + 1] = field
end
copy.fields = copy_fields
local copy_malformed =
    ProtoExpert.new("weftcopy.malformed", "malformed copy", expert.group.MALFORMED, expert.severity.ERROR)
copy.experts = { copy_malformed }

function copy.dissector(t, pinfo, root)
    if t:len() < 6 or t(0, 2):uint() ~= COPY_MAGIC then
        return 0
    end
    pinfo.cols.protocol = "WEFTCOPY"
    local tree = root:add(copy, t())
    tree:add(c.magic, t(0, 2))
    tree:add(c.version, t(2, 1))
    tree:add(c.notifies, t(3, 1))
    tree:add(c.index, t(4, 2))
    local value_len = t(3, 1):uint() % 2 * COPY_VALUE_LEN
    local data_len = t:reported_len() - COPY_HEADER_LEN - value_len
    local text = "copy into chain " .. t(4, 2):uint()
    if t(2, 1):uint() ~= 1 or data_len < 0 then
        tree:add_proto_expert_info(copy_malformed)
        text = text .. " [malformed]"
    else
        text = text .. ", " .. data_len .. " bytes"
        if value_len > 0 then
            text = text .. ", then a notification"
        end
        -- Captures keep the first bytes of long frames.
        local kept = math.min(data_len, t:len() - COPY_HEADER_LEN)
        if kept > 0 then
            tree:add(c.data, t(COPY_HEADER_LEN, kept))
        end
        if value_len > 0 and t:len() == t:reported_len() then
            tree:add_le(c.value, t(COPY_HEADER_LEN + data_len, value_len))
        end
    end
    pinfo.cols.info = text
    tree:append_text(", " .. text)
    return t:len()
end

-- Frames between cards: multicast in the card (docs/spec/card-multicast.md).
local mc = Proto("weftmc", "Weft Multicast in the Card")
local MC_MAGIC = 0x574d
local MC_HEADER_LEN = 24
local MC_KINDS = {
    [0] = "SEND",
    [1] = "DATA",
    [2] = "STATE",
    [3] = "CREDIT",
    [4] = "ANNOUNCE",
    [5] = "GONE",
    [6] = "SENT",
}
local m = {
    magic = ProtoField.uint16("weftmc.magic", "Magic", base.HEX),
    version = ProtoField.uint8("weftmc.version", "Version", base.DEC),
    kind = ProtoField.uint8("weftmc.kind", "Kind", base.DEC, MC_KINDS),
    group = ProtoField.uint16("weftmc.group", "Group", base.DEC),
    generation = ProtoField.uint16("weftmc.generation", "Generation of the tables", base.DEC),
    rank = ProtoField.uint16("weftmc.rank", "Rank of the sender", base.DEC),
    sender = ProtoField.ether("weftmc.sender", "Sender"),
    sequence = ProtoField.uint32("weftmc.sequence", "Sequence", base.DEC),
    hops = ProtoField.uint8("weftmc.hops", "Hops", base.DEC),
    flag = ProtoField.bool("weftmc.flag", "Waits (STATE), asks (CREDIT, SEND)", 8, nil, 0x01),
    unicast = ProtoField.bool("weftmc.unicast", "For one member", 8, nil, 0x02),
    payload_length = ProtoField.uint16("weftmc.payload_length", "Bytes of the payload", base.DEC),
    payload = ProtoField.bytes("weftmc.payload", "Payload"),
}
local mc_fields = {}
for _, field in pairs(m) do
    mc_fields[#mc_fields + 1] = field
end
mc.fields = mc_fields
local mc_malformed =
    ProtoExpert.new("weftmc.malformed", "malformed frame between cards", expert.group.MALFORMED, expert.severity.ERROR)
mc.experts = { mc_malformed }

function mc.dissector(t, pinfo, root)
    -- The EtherType is free for experiments: frames without the magic belong to other programs.
    if t:len() >= 2 and t(0, 2):uint() == LCI_MAGIC then
        return lci.dissector(t, pinfo, root)
    end
    if t:len() >= 2 and t(0, 2):uint() == COPY_MAGIC then
        return copy.dissector(t, pinfo, root)
    end
    if t:len() < MC_HEADER_LEN or t(0, 2):uint() ~= MC_MAGIC then
        return 0
    end
    pinfo.cols.protocol = "WEFTMC"
    local tree = root:add(mc, t())
    local at = 0
    local function put(field, len)
        tree:add(field, t(at, len))
        at = at + len
        return t(at - len, len)
    end
    put(m.magic, 2)
    local version = put(m.version, 1):uint()
    local kind = put(m.kind, 1):uint()
    local group = put(m.group, 2):uint()
    put(m.generation, 2)
    put(m.rank, 2)
    local sender = tostring(put(m.sender, 6):ether())
    local sequence = put(m.sequence, 4):uint()
    local hops = put(m.hops, 1):uint()
    tree:add(m.unicast, t(at, 1))
    put(m.flag, 1)
    local length = put(m.payload_length, 2):uint()
    local text = MC_KINDS[kind] or ("kind " .. kind)
    if kind ~= 4 then
        text = text .. ", group " .. group
    end
    if kind == 1 then
        text = text .. ", number " .. sequence .. " from " .. sender .. ", " .. hops .. " hops"
    elseif kind == 2 then
        text = text .. ", next number " .. sequence .. " from " .. sender
    elseif kind == 3 then
        text = text .. ", below number " .. sequence .. " from " .. sender
    elseif kind == 5 then
        text = text .. ", " .. sender
    elseif kind == 6 then
        text = text .. ", " .. sequence .. " packets have left"
    end
    if version ~= 1 or not MC_KINDS[kind] or MC_HEADER_LEN + length > t:reported_len() then
        tree:add_proto_expert_info(mc_malformed)
        text = text .. " [malformed]"
    elseif length > 0 and MC_HEADER_LEN + length <= t:len() then
        tree:add(m.payload, t(MC_HEADER_LEN, length))
    end
    tree:append_text(", " .. text)
    -- LCI-ni and LCI-mixed send their packets in these; a capture may have kept only the first bytes.
    local kept = math.min(length, t:len() - MC_HEADER_LEN)
    local of_lci = kept > 0 and dissect_lci(t(MC_HEADER_LEN, kept):tvb(), pinfo, root)
    if of_lci then
        text = of_lci .. " (" .. text .. ")"
    end
    pinfo.cols.info = text
    return t:len()
end

DissectorTable.get("ethertype"):add(0x88b6, mc)

-- Frames of ESP and EDP (docs/spec/esp-wire.md).
local esp = Proto("weftesp", "Weft Ethernet Stream and Datagram Protocols")
local ESP_HEADER_LEN = 13
-- A length in data of so many bytes behind the header of Ethernet marks it as one of many.
local ESP_MARKED_LEN_MIN = 114
local ESP_KINDS = {
    [0] = "datagram", [1] = "ping", [2] = "pong", [3] = "data", [4] = "acknowledgement", [5] = "SYN",
    [6] = "SYN+ACK", [7] = "FIN", [8] = "reset", [9] = "probe", [10] = "moved", [11] = "piece",
}
local ESP_RESETS = { [0] = "no such connection", [1] = "nobody listens", [2] = "given up" }
local ESP_BLOCKS = { [0] = "end", [1] = "selective acknowledgement", [2] = "mark", [3] = "check sequences",
    [4] = "addresses of the programs" }
-- Bytes of a body without payload, as far as they are fixed.
local ESP_BODIES = { [1] = 9, [2] = 11, [4] = 1, [5] = 11, [6] = 21, [8] = 1, [10] = 10, [11] = 4 }
local s = {
    kind = ProtoField.uint8("weftesp.kind", "Kind", base.DEC, ESP_KINDS, 0xf0),
    ack_valid = ProtoField.bool("weftesp.ack_valid", "Acknowledgement valid", 8, nil, 0x01),
    push = ProtoField.bool("weftesp.push", "Push", 8, nil, 0x02),
    window_follows = ProtoField.bool("weftesp.window_follows", "Window follows", 8, nil, 0x04),
    length_follows = ProtoField.bool("weftesp.length_follows", "Length follows", 8, nil, 0x08),
    source_port = ProtoField.uint16("weftesp.source_port", "Source port", base.DEC),
    destination_port = ProtoField.uint16("weftesp.destination_port", "Destination port", base.DEC),
    number = ProtoField.uint32("weftesp.number", "Number", base.DEC),
    ack = ProtoField.uint32("weftesp.ack", "Next expected number", base.DEC),
    window = ProtoField.uint32("weftesp.window", "Window, in packets", base.DEC),
    payload_length = ProtoField.uint16("weftesp.payload_length", "Bytes of the payload", base.DEC),
    one_of_many = ProtoField.bool("weftesp.one_of_many", "One of many"),
    version = ProtoField.uint8("weftesp.version", "Version", base.DEC),
    instance = ProtoField.uint64("weftesp.instance", "Instance", base.HEX),
    peer_instance = ProtoField.uint64("weftesp.peer_instance", "Instance of the SYN", base.HEX),
    listened_port = ProtoField.uint16("weftesp.listened_port", "Port that the SYN was for", base.DEC),
    payload_max = ProtoField.uint16("weftesp.payload_max", "Largest payload", base.DEC),
    block = ProtoField.uint8("weftesp.block", "Block", base.DEC, ESP_BLOCKS),
    range_first = ProtoField.uint32("weftesp.range_first", "First number of a range", base.DEC),
    range_end = ProtoField.uint32("weftesp.range_end", "Number behind the range", base.DEC),
    reason = ProtoField.uint8("weftesp.reason", "Reason", base.DEC, ESP_RESETS),
    old_port = ProtoField.uint16("weftesp.old_port", "Old port", base.DEC),
    offset = ProtoField.uint16("weftesp.offset", "Offset of the piece", base.DEC),
    total = ProtoField.uint16("weftesp.total", "Bytes of the whole payload", base.DEC),
    cookie = ProtoField.uint64("weftesp.cookie", "Cookie", base.HEX),
    mtu = ProtoField.uint16("weftesp.mtu", "MTU", base.DEC),
    address4 = ProtoField.ipv4("weftesp.address4", "IPv4 address"),
    address6 = ProtoField.ipv6("weftesp.address6", "IPv6 address"),
    payload = ProtoField.bytes("weftesp.payload", "Payload (with the check sequence, if there is one)"),
}
local esp_fields = {}
for _, field in pairs(s) do
    esp_fields[#esp_fields + 1] = field
end
esp.fields = esp_fields
local esp_malformed =
    ProtoExpert.new("weftesp.malformed", "malformed frame of ESP", expert.group.MALFORMED, expert.severity.ERROR)
esp.experts = { esp_malformed }

-- Adds the address at a place, and returns the place behind it; none if there is no such address.
local function esp_address(t, tree, at)
    local family = t(at, 1):uint()
    local len = family == 4 and 4 or family == 6 and 16 or nil
    if not len or at + 1 + len > t:len() then
        return nil
    end
    tree:add(family == 4 and s.address4 or s.address6, t(at + 1, len))
    return at + 1 + len
end

-- What a body adds to the summary, by kind; "malformed" if it is.
local function esp_body(t, tree, kind, at)
    local function put(field, len)
        tree:add(field, t(at, len))
        at = at + len
        return t(at - len, len)
    end
    if kind == 1 or kind == 2 then
        put(s.cookie, 8)
        local count = 1
        if kind == 2 then
            put(s.mtu, 2)
            count = t(at, 1):uint()
            at = at + 1
        elseif t(at, 1):uint() == 0 then
            count = 0
        end
        for _ = 1, count do
            at = at and at < t:len() and esp_address(t, tree, at)
            if not at then
                return "malformed"
            end
        end
    elseif kind == 4 then
        local count = t(at, 1):uint()
        at = at + 1
        if count > 8 or at + 8 * count > t:len() then
            return "malformed"
        end
        for _ = 1, count do
            put(s.range_first, 4)
            put(s.range_end, 4)
        end
        return count > 0 and ", " .. count .. " ranges" or ""
    elseif kind == 5 or kind == 6 then
        local version = put(s.version, 1):uint()
        put(s.instance, 8)
        if kind == 6 then
            put(s.peer_instance, 8)
            put(s.listened_port, 2)
        end
        put(s.payload_max, 2)
        while at + 1 < t:len() and t(at, 1):uint() ~= 0 do
            tree:add(s.block, t(at, 1))
            at = at + 2 + t(at + 1, 1):uint()
        end
        return version ~= 1 and "malformed" or ""
    elseif kind == 8 then
        local reason = ESP_RESETS[put(s.reason, 1):uint()]
        return reason and ", " .. reason or "malformed"
    elseif kind == 10 then
        local old_port = put(s.old_port, 2):uint()
        put(s.instance, 8)
        return ", from port " .. old_port
    end
    return ""
end

-- The payload, which ends where its length says, or with the frame.
local function esp_payload(t, tree, kind, at, length)
    if kind == 11 then
        tree:add(s.offset, t(at, 2))
        tree:add(s.total, t(at + 2, 2))
        at = at + 4
    end
    length = length or t:reported_len() - at
    if at + length > t:reported_len() or length == 0 and kind ~= 0 then
        return "malformed"
    end
    if length > 0 and at + length <= t:len() then
        tree:add(s.payload, t(at, length))
    end
    return ", " .. length .. " bytes"
end

function esp.dissector(t, pinfo, root)
    if t:len() < ESP_HEADER_LEN then
        return 0
    end
    local kind = t(0, 1):bitfield(0, 4)
    pinfo.cols.protocol = kind <= 2 and "EDP" or "ESP"
    local tree = root:add(esp, t())
    for _, field in ipairs({ s.kind, s.ack_valid, s.push, s.window_follows, s.length_follows }) do
        tree:add(field, t(0, 1))
    end
    tree:add(s.source_port, t(1, 2))
    tree:add(s.destination_port, t(3, 2))
    tree:add(s.number, t(5, 4))
    local text = (ESP_KINDS[kind] or ("kind " .. kind)) .. ", " .. t(1, 2):uint() .. " to " .. t(3, 2):uint()
    if kind > 2 then
        text = text .. ", number " .. t(5, 4):uint()
    end
    if t(0, 1):bitfield(7, 1) == 1 then
        tree:add(s.ack, t(9, 4))
        text = text .. ", expects " .. t(9, 4):uint()
    end
    local at = ESP_HEADER_LEN
    local has_window, has_length = t(0, 1):bitfield(5, 1) == 1, t(0, 1):bitfield(4, 1) == 1
    local more = (has_window and 4 or 0) + (has_length and 2 or 0) + (ESP_BODIES[kind] or 0)
    local result = "malformed"
    if at + more <= t:len() and ESP_KINDS[kind] then
        if has_window then
            tree:add(s.window, t(at, 4))
            text = text .. ", window " .. t(at, 4):uint()
            at = at + 4
        end
        local length = nil
        if has_length then
            tree:add(s.payload_length, t(at, 2))
            length = t(at, 2):uint()
            at = at + 2
        end
        if kind == 3 then
            tree:add(s.one_of_many, has_length and t:len() >= ESP_MARKED_LEN_MIN):set_generated()
        end
        if kind == 0 or kind == 3 or kind == 11 then
            result = esp_payload(t, tree, kind, at, length)
        else
            result = esp_body(t, tree, kind, at)
        end
    end
    if result == "malformed" then
        tree:add_proto_expert_info(esp_malformed)
        result = " [malformed]"
    end
    text = text .. result
    pinfo.cols.info = text
    tree:append_text(", " .. text)
    return t:len()
end

DissectorTable.get("ethertype"):add(0x4553, esp)
