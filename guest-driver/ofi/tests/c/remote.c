/* Reads and writes of another endpoint's memory (docs/spec/ofi-provider.md section 6), one case after the other:
 *
 *     remote INTERFACE INTERFACE [CASE...]
 *
 * Two processes, each with its interface: two ends of a cable, or one interface for messages inside the host. */

#include "end.h"

#include <rdma/fi_atomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const size_t SIZES[] = {0, 1, 8, 120, 128, 4096, 8143, 8144, 8145, 8192, 32768, 100000, 1048576, 3000001};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

enum { ROOM = 4 << 20 };

/* Where the memory of the other process is. */
struct place {
    uint64_t address, key;
};

static struct place tell(struct end *end, struct place own) {
    struct place other;
    CHECK(write(end->other, &own, sizeof own) == sizeof own, "the other process is gone");
    CHECK(read(end->other, &other, sizeof other) == sizeof other, "the other process is gone");
    return other;
}

/* Registers memory with these rights, and learns of the other process's. */
static struct fid_mr *region(struct end *end, void *start, size_t len, uint64_t access, struct place *other) {
    struct fid_mr *mr;
    FI(fi_mr_reg(end->domain, start, len, access, 0, 0, 0, &mr, NULL));
    *other = tell(end, (struct place){(uintptr_t) start, fi_mr_key(mr)});
    return mr;
}

static void over(struct end *end, void *context, uint64_t flags) {
    struct fi_cq_tagged_entry entry = next(end, end->tx);
    CHECK(entry.op_context == context && (entry.flags & (FI_RMA | FI_READ | FI_WRITE)) == (FI_RMA | flags), "flags %lx", entry.flags);
}

static void failed(struct end *end, void *context) {
    struct fi_cq_err_entry error = next_error(end, end->tx);
    CHECK(error.op_context == context && error.err == FI_EACCES, "error %d", error.err);
}

/* Whatever the length, the bytes arrive in their place and nothing else changes, in both directions at once. */
static void written_and_read(struct end *end) {
    unsigned char *memory = malloc(ROOM), *got = malloc(ROOM);
    memset(memory, 0xaa, ROOM);
    struct place other;
    struct fid_mr *mr = region(end, memory, ROOM, FI_REMOTE_READ | FI_REMOTE_WRITE, &other);
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        size_t len = SIZES[i], at = 64 + i;
        unsigned char *sent = bytes_of(len, (unsigned) (2 * i) + (unsigned) end->rank);
        char context;
        FI(fi_write(end->ep, sent, len, NULL, end->peer, other.address + at, other.key, &context));
        over(end, &context, FI_WRITE);
        step(end);
        check_bytes(memory + at, len, (unsigned) (2 * i) + !end->rank);
        CHECK(memory[at - 1] == 0xaa && memory[at + len] == 0xaa, "bytes beside the place");
        /* What this end wrote there. */
        memset(got, 0x55, len + 1);
        FI(fi_read(end->ep, got, len, NULL, end->peer, other.address + at, other.key, &context));
        over(end, &context, FI_READ);
        check_bytes(got, len, (unsigned) (2 * i) + (unsigned) end->rank);
        CHECK(got[len] == 0x55, "a byte too many");
        step(end);
        memset(memory + at, 0xaa, len);
        free(sent);
        step(end);
    }
    FI(fi_close(&mr->fid));
    free(memory);
    free(got);
}

/* Every function, with pieces, immediate data and copies. */
static void every_function(struct end *end) {
    enum { LEN = 4000 };
    unsigned char *memory = calloc(1, ROOM);
    struct place other;
    struct fid_mr *mr = region(end, memory, ROOM, FI_REMOTE_READ | FI_REMOTE_WRITE, &other);
    if (end->rank == 0) {
        unsigned char *sent = bytes_of(LEN, 3), *got = calloc(1, LEN);
        struct iovec in[2] = {{sent, 1000}, {sent + 1000, LEN - 1000}}, out[2] = {{got, 77}, {got + 77, LEN - 77}};
        char context;
        struct fi_rma_iov place = {.addr = other.address, .len = LEN, .key = other.key};
        struct fi_msg_rma message = {.msg_iov = in, .iov_count = 2, .addr = end->peer, .rma_iov = &place, .rma_iov_count = 1, .context = &context, .data = 21};
        FI(fi_writev(end->ep, in, NULL, 2, end->peer, other.address, other.key, &context));
        over(end, &context, FI_WRITE);
        place.addr += LEN;
        FI(fi_writemsg(end->ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA));
        over(end, &context, FI_WRITE);
        place.addr += LEN;
        FI(fi_writedata(end->ep, sent, LEN, NULL, 22, end->peer, place.addr, other.key, &context));
        over(end, &context, FI_WRITE);
        place.addr += LEN;
        FI(fi_inject_write(end->ep, sent, LEN, end->peer, place.addr, other.key));
        place.addr += LEN;
        FI(fi_inject_writedata(end->ep, sent, LEN, 23, end->peer, place.addr, other.key));
        place.addr += LEN;
        FI(fi_writemsg(end->ep, &message, FI_INJECT | FI_COMPLETION));
        memset(sent, 0, LEN);
        over(end, &context, FI_WRITE);
        nothing(end, end->tx);
        for (int turn = 0; turn < 6; turn++) {
            place.addr = other.address + (uint64_t) turn * LEN;
            message.msg_iov = out;
            memset(got, 0, LEN);
            if (turn % 2)
                FI(fi_readv(end->ep, out, NULL, 2, end->peer, place.addr, other.key, &context));
            else
                FI(fi_readmsg(end->ep, &message, FI_COMPLETION));
            over(end, &context, FI_READ);
            check_bytes(got, LEN, 3);
        }
        place.len = LEN - 1;
        CHECK(fi_readmsg(end->ep, &message, 0) == -FI_EINVAL, "other lengths");
        CHECK(fi_writemsg(end->ep, &message, FI_MATCH_COMPLETE) == -FI_EBADFLAGS, "a flag of messages");
        step(end);
    } else {
        for (uint64_t data = 21; data <= 23; data++) {
            struct fi_cq_tagged_entry entry = next(end, end->rx);
            CHECK(entry.data == data && entry.len == LEN, "data %lu of %lu", entry.data, data);
            CHECK(entry.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA), "flags %lx", entry.flags);
        }
        step(end);
        nothing(end, end->rx);
    }
    FI(fi_close(&mr->fid));
    free(memory);
}

/* Keys, rights and bounds are checked by the endpoint whose memory it is, and each refusal is told. */
static void refused(struct end *end) {
    enum { LEN = 20000 };
    unsigned char *memory = malloc(3 * LEN);
    memset(memory, 7, 3 * LEN);
    struct place other, read_only, write_only, closed;
    struct fid_mr *mr = region(end, memory + LEN, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, &other);
    struct fid_mr *reads = region(end, memory + LEN, LEN, FI_REMOTE_READ, &read_only);
    struct fid_mr *writes = region(end, memory + LEN, LEN, FI_REMOTE_WRITE, &write_only);
    struct fid_mr *gone = region(end, memory + LEN, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, &closed);
    FI(fi_close(&gone->fid));
    step(end);
    CHECK(other.key != read_only.key && read_only.key != write_only.key && (other.key | read_only.key | write_only.key) >> 32, "keys");
    unsigned char *bytes = calloc(1, 3 * LEN);
    char context;
    struct { uint64_t address, key; size_t len; bool reads, writes; } cases[] = {
        {other.address, other.key + 1, 8, true, true},
        {other.address, 0, 8, true, true},
        {other.address, closed.key, 8, true, true},
        {other.address - 1, other.key, 8, true, true},
        {other.address, other.key, LEN + 1, true, true},
        {other.address + LEN - 7, other.key, 8, true, true},
        {other.address + LEN, other.key, LEN, true, true},
        {0, other.key, 1, true, true},
        {UINT64_MAX, other.key, 2, true, true},
        {other.address, read_only.key, LEN, false, true},
        {other.address, read_only.key, 8, false, true},
        {other.address, write_only.key, LEN, true, false},
        {other.address, write_only.key, 8, true, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (cases[i].writes) {
            FI(fi_write(end->ep, bytes, cases[i].len, NULL, end->peer, cases[i].address, cases[i].key, &context));
            failed(end, &context);
        }
        if (cases[i].reads) {
            FI(fi_read(end->ep, bytes, cases[i].len, NULL, end->peer, cases[i].address, cases[i].key, &context));
            failed(end, &context);
        }
    }
    for (size_t i = 0; i < 3 * LEN; i++)
        CHECK(bytes[i] == 0, "byte %zu of what may not be read", i);
    FI(fi_read(end->ep, bytes, LEN, NULL, end->peer, other.address, read_only.key, &context));
    over(end, &context, FI_READ);
    step(end);
    for (size_t i = 0; i < 3 * LEN; i++)
        CHECK(memory[i] == 7, "byte %zu of what may not be written", i);
    FI(fi_close(&mr->fid));
    FI(fi_close(&reads->fid));
    FI(fi_close(&writes->fid));
    free(memory);
    free(bytes);
}

/* The other process computes: it does not call the provider while its memory is read and written. */
static void while_the_other_computes(struct end *end) {
    unsigned char *memory = malloc(ROOM);
    struct place other;
    memset(memory, 9, ROOM);
    struct fid_mr *mr = region(end, memory, ROOM, FI_REMOTE_READ | FI_REMOTE_WRITE, &other);
    if (end->rank == 0) {
        unsigned char *bytes = malloc(ROOM);
        char context;
        for (size_t len = 8; len <= 1 << 20; len *= 128) {
            FI(fi_read(end->ep, bytes, len, NULL, end->peer, other.address, other.key, &context));
            over(end, &context, FI_READ);
            CHECK(bytes[0] == 9 && bytes[len - 1] == 9, "the bytes");
            FI(fi_write(end->ep, bytes, len, NULL, end->peer, other.address + ROOM / 2, other.key, &context));
            over(end, &context, FI_WRITE);
        }
        free(bytes);
    }
    step(end);
    FI(fi_close(&mr->fid));
    free(memory);
}

/* As many accesses as the queue holds, before there is a connection and after; each ends once. */
static void many_at_once(struct end *end) {
    enum { EACH = 64, ACCESSES = 3000 };
    unsigned char *memory = calloc(ACCESSES, EACH), *bytes = malloc(ACCESSES * EACH);
    struct place other;
    struct fid_mr *mr = region(end, memory, ACCESSES * EACH, FI_REMOTE_READ | FI_REMOTE_WRITE, &other);
    for (size_t i = 0; i < ACCESSES * EACH; i++)
        bytes[i] = (unsigned char) (i * 11 + i / 256);
    static char contexts[ACCESSES];
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < ACCESSES; i++) {
            void *at = bytes + i * EACH;
            uint64_t place = other.address + i * EACH;
            if (turn == 0)
                FI(fi_write(end->ep, at, EACH, NULL, end->peer, place, other.key, &contexts[i]));
            else
                FI(fi_read(end->ep, at, EACH, NULL, end->peer, place, other.key, &contexts[i]));
        }
        for (size_t i = 0; i < ACCESSES; i++) {
            char *context = next(end, end->tx).op_context;
            CHECK(context >= contexts && context < contexts + ACCESSES && *context == turn, "told twice");
            *context = (char) (turn + 1);
        }
        nothing(end, end->tx);
        step(end);
        if (turn == 0) {
            for (size_t i = 0; i < ACCESSES * EACH; i++)
                CHECK(memory[i] == (unsigned char) (i * 11 + i / 256), "byte %zu", i);
            memset(bytes, 0, ACCESSES * EACH);
        }
    }
    for (size_t i = 0; i < ACCESSES * EACH; i++)
        CHECK(bytes[i] == (unsigned char) (i * 11 + i / 256), "byte %zu", i);
    step(end);
    memset(contexts, 0, sizeof contexts);
    FI(fi_close(&mr->fid));
    free(memory);
    free(bytes);
}

/* Counters count accesses; the endpoint's own memory is reached, too. */
static void counted_and_own(struct end *end) {
    struct fid_cntr *counter;
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    FI(fi_cntr_open(end->domain, &attr, &counter, NULL));
    struct fid_ep *ep;
    FI(fi_endpoint(end->domain, end->info, &ep, NULL));
    FI(fi_ep_bind(ep, &end->av->fid, 0));
    FI(fi_ep_bind(ep, &end->tx->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
    FI(fi_ep_bind(ep, &end->rx->fid, FI_RECV));
    FI(fi_ep_bind(ep, &counter->fid, FI_READ | FI_WRITE));
    FI(fi_enable(ep));
    unsigned char memory[1000] = {0}, bytes[1000];
    memset(bytes, 3, sizeof bytes);
    struct place other;
    struct fid_mr *mr = region(end, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, &other);
    struct place own = {(uintptr_t) memory, fi_mr_key(mr)};
    struct iovec piece = {bytes, 1000};
    struct fi_rma_iov place = {.addr = other.address, .len = 1000, .key = other.key};
    struct fi_msg_rma message = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .rma_iov = &place, .rma_iov_count = 1};
    FI(fi_writemsg(ep, &message, 0));
    FI(fi_readmsg(ep, &message, 0));
    FI(fi_inject_write(ep, bytes, 1000, end->peer, other.address, other.key));
    FI(fi_cntr_wait(counter, 3, 20000));
    CHECK(fi_cntr_readerr(counter) == 0, "no errors");
    FI(fi_inject_write(ep, bytes, 1, end->peer, other.address + 1000, other.key));
    CHECK(fi_cntr_wait(counter, 4, 20000) == -FI_EAVAIL || fi_cntr_readerr(counter) == 1, "an error is counted");
    step(end);
    char context;
    memset(memory, 4, sizeof memory);
    FI(fi_read(end->ep, bytes, 1000, NULL, end->own, own.address, own.key, &context));
    over(end, &context, FI_READ);
    CHECK(bytes[0] == 4 && bytes[999] == 4, "the own bytes");
    bytes[5] = 6;
    FI(fi_write(end->ep, bytes, 1000, NULL, end->own, own.address, own.key, &context));
    over(end, &context, FI_WRITE);
    CHECK(memory[5] == 6, "the own bytes");
    step(end);
    FI(fi_close(&ep->fid));
    FI(fi_close(&counter->fid));
    FI(fi_close(&mr->fid));
}

/* Memory that is closed while others write to it, and taken away, is not touched any more; the writes are told as refused. */
static void closed_while_written(struct end *end) {
    unsigned char *bytes = malloc(ROOM);
    static char contexts[16];
    for (int round = 0; round < 10; round++) {
        struct place other;
        if (end->rank == 0) {
            unsigned char *memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            struct fid_mr *mr = region(end, memory, ROOM, FI_REMOTE_WRITE, &other);
            double until = now_s() + 0.002 * round;
            while (now_s() < until)
                progress(end);
            FI(fi_close(&mr->fid));
            FI(munmap(memory, ROOM));
            step(end);
        } else {
            other = tell(end, (struct place){0});
            for (size_t i = 0; i < COUNT(contexts); i++)
                FI(fi_write(end->ep, bytes, i % 2 ? ROOM : 1000, NULL, end->peer, other.address, other.key, &contexts[i]));
            for (size_t i = 0; i < COUNT(contexts); i++) {
                struct fi_cq_tagged_entry entry;
                struct fi_cq_err_entry error = {0};
                ssize_t count;
                double until = now_s() + LIMIT_S;
                while ((count = fi_cq_read(end->tx, &entry, 1)) == -FI_EAGAIN)
                    CHECK(now_s() < until, "write %zu of round %d is not over", i, round);
                if (count == -FI_EAVAIL) {
                    CHECK(fi_cq_readerr(end->tx, &error, 0) == 1, "a failure");
                    CHECK(error.err == FI_EACCES, "error %d", error.err);
                }
            }
            step(end);
        }
    }
    free(bytes);
}

static void atomic_over(struct end *end, void *context, uint64_t flags) {
    struct fi_cq_tagged_entry entry = next(end, end->tx);
    CHECK(entry.op_context == context && (entry.flags & (FI_ATOMIC | FI_READ | FI_WRITE)) == (FI_ATOMIC | flags), "flags %lx", entry.flags);
}

/* Every function of atomic operations, with pieces; the old values are those that were there. */
static void atomic_functions(struct end *end) {
    uint64_t memory[64];
    for (uint64_t i = 0; i < COUNT(memory); i++)
        memory[i] = 1000 + i;
    struct place other;
    struct fid_mr *mr = region(end, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, &other);
    if (end->rank == 0) {
        uint64_t by[4] = {1, 2, 3, 4}, old[4] = {0}, compared[4] = {1011, 0, 1018, 0};
        struct fi_ioc in[2] = {{&by[0], 1}, {&by[1], 3}}, out[2] = {{&old[0], 3}, {&old[3], 1}}, compare[1] = {{compared, 4}};
        char context;
        fi_addr_t to = end->peer;
        uint64_t at = other.address, key = other.key;
        struct fi_rma_ioc place = {.addr = at, .count = 4, .key = key};
        struct fi_msg_atomic message = {.msg_iov = in, .iov_count = 2, .addr = to, .rma_iov = &place, .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM, .context = &context};
        FI(fi_atomic(end->ep, by, 4, NULL, to, at, key, FI_UINT64, FI_SUM, &context));
        by[0] = 1; /* The operands are copied. */
        atomic_over(end, &context, FI_WRITE);
        FI(fi_atomicv(end->ep, in, NULL, 2, to, at, key, FI_UINT64, FI_SUM, &context));
        atomic_over(end, &context, FI_WRITE);
        FI(fi_atomicmsg(end->ep, &message, FI_COMPLETION | FI_INJECT));
        atomic_over(end, &context, FI_WRITE);
        FI(fi_inject_atomic(end->ep, by, 4, to, at, key, FI_UINT64, FI_SUM));
        nothing(end, end->tx);
        FI(fi_fetch_atomic(end->ep, by, 4, NULL, old, NULL, to, at, key, FI_UINT64, FI_SUM, &context));
        atomic_over(end, &context, FI_READ);
        for (uint64_t i = 0; i < 4; i++)
            CHECK(old[i] == 1000 + i + 4 * (i + 1), "old value %lu", old[i]);
        FI(fi_fetch_atomicv(end->ep, in, NULL, 2, out, NULL, 2, to, at, key, FI_UINT64, FI_SUM, &context));
        atomic_over(end, &context, FI_READ);
        FI(fi_fetch_atomicmsg(end->ep, &message, out, NULL, 2, FI_COMPLETION));
        atomic_over(end, &context, FI_READ);
        for (uint64_t i = 0; i < 4; i++)
            CHECK(old[i] == 1000 + i + 6 * (i + 1), "old value %lu", old[i]);
        /* Values with index 0 and 2 are 1007 and 1023, 1 and 3 others. */
        FI(fi_fetch_atomic(end->ep, NULL, 4, NULL, old, NULL, to, at, key, FI_UINT64, FI_ATOMIC_READ, &context));
        atomic_over(end, &context, FI_READ);
        CHECK(old[0] == 1007 && old[1] == 1015 && old[2] == 1023 && old[3] == 1031, "%lu %lu %lu %lu", old[0], old[1], old[2], old[3]);
        compared[0] = 1007;
        compared[2] = 1023;
        FI(fi_compare_atomic(end->ep, by, 4, NULL, compared, NULL, old, NULL, to, at, key, FI_UINT64, FI_CSWAP, &context));
        atomic_over(end, &context, FI_READ);
        CHECK(old[0] == 1007 && old[3] == 1031, "old values");
        FI(fi_compare_atomicv(end->ep, in, NULL, 2, compare, NULL, 1, out, NULL, 2, to, at, key, FI_UINT64, FI_CSWAP, &context));
        atomic_over(end, &context, FI_READ);
        message.op = FI_CSWAP_NE;
        FI(fi_compare_atomicmsg(end->ep, &message, compare, NULL, 1, out, NULL, 2, FI_COMPLETION));
        atomic_over(end, &context, FI_READ);
        CHECK(old[0] == 1 && old[1] == 1015 && old[2] == 3 && old[3] == 1031, "%lu %lu %lu %lu", old[0], old[1], old[2], old[3]);
        size_t count = 0;
        FI(fi_atomicvalid(end->ep, FI_UINT64, FI_SUM, &count));
        CHECK(count >= 4, "%zu values at once", count);
        struct fi_atomic_attr attr;
        FI(fi_query_atomic(end->domain, FI_DOUBLE, FI_MAX, &attr, FI_FETCH_ATOMIC));
        CHECK(attr.count == count && attr.size == 8, "%zu values of %zu bytes", attr.count, attr.size);
        CHECK(fi_query_atomic(end->domain, FI_DOUBLE, FI_BOR, &attr, 0) == -FI_EOPNOTSUPP, "bits of a number");
        CHECK(fi_query_atomic(end->domain, FI_UINT64, FI_SUM, &attr, FI_COMPARE_ATOMIC) == -FI_EOPNOTSUPP, "a sum compares nothing");
        CHECK(fi_atomic(end->ep, by, 1, NULL, to, at, key, FI_LONG_DOUBLE, FI_SUM, &context) == -FI_EOPNOTSUPP, "a type that is not offered");
        CHECK(fi_atomic(end->ep, memory, count + 1, NULL, to, at, key, FI_UINT64, FI_SUM, &context) == -FI_EMSGSIZE, "too many values");
        place.count = 3;
        CHECK(fi_atomicmsg(end->ep, &message, 0) == -FI_EOPNOTSUPP, "a swap without old values");
        message.op = FI_SUM;
        CHECK(fi_atomicmsg(end->ep, &message, 0) == -FI_EINVAL, "other numbers of values");
        FI(fi_atomic(end->ep, by, 1, NULL, to, at + sizeof memory - 4, key, FI_UINT64, FI_SUM, &context));
        failed(end, &context);
    }
    step(end);
    if (end->rank == 1) {
        CHECK(memory[0] == 1 && memory[1] == 2 && memory[2] == 3 && memory[3] == 4, "%lu %lu %lu %lu", memory[0], memory[1], memory[2], memory[3]);
        for (uint64_t i = 4; i < COUNT(memory); i++)
            CHECK(memory[i] == 1000 + i, "a value beside");
    }
    FI(fi_close(&mr->fid));
}

/* Both processes count at the same places, without one lost or told twice, in the order of their calls. */
static void counted_together(struct end *end) {
    enum { COUNTS = 2000 };
    uint64_t counter[2] = {0};
    struct place other;
    struct fid_mr *mr = region(end, counter, sizeof counter, FI_REMOTE_READ | FI_REMOTE_WRITE, &other);
    /* Both count at process 0. */
    struct place at = end->rank == 0 ? (struct place){(uintptr_t) counter, fi_mr_key(mr)} : other;
    fi_addr_t to = end->rank == 0 ? end->own : end->peer;
    static uint64_t old[COUNTS];
    uint64_t one = 1, own = 0;
    for (int i = 0; i < COUNTS; i++) {
        FI(fi_fetch_atomic(end->ep, &one, 1, NULL, &old[i], NULL, to, at.address, at.key, FI_UINT64, FI_SUM, NULL));
        if (i % 7 == 0) {
            FI(fi_inject_atomic(end->ep, &one, 1, to, at.address + 8, at.key, FI_UINT64, FI_SUM));
            own++;
        }
    }
    for (int i = 0; i < COUNTS; i++)
        next(end, end->tx);
    for (int i = 1; i < COUNTS; i++)
        CHECK(old[i] > old[i - 1] && old[i] < 2 * COUNTS, "%lu after %lu", old[i], old[i - 1]);
    step(end);
    if (end->rank == 0) {
        double until = now_s() + LIMIT_S;
        while (*(volatile uint64_t *) &counter[1] != 2 * own) {
            progress(end);
            CHECK(now_s() < until, "%lu of %lu", counter[1], 2 * own);
        }
        CHECK(counter[0] == 2 * COUNTS, "%lu counts", counter[0]);
    }
    step(end);
    FI(fi_close(&mr->fid));
}

static const struct {
    const char *name;
    void (*run)(struct end *end);
} CASES[] = {
    {"written_and_read", written_and_read},
    {"every_function", every_function},
    {"refused", refused},
    {"while_the_other_computes", while_the_other_computes},
    {"many_at_once", many_at_once},
    {"counted_and_own", counted_and_own},
    {"closed_while_written", closed_while_written},
    {"atomic_functions", atomic_functions},
    {"counted_together", counted_together},
};

int main(int count, char **arguments) {
    CHECK(count >= 3, "usage: remote INTERFACE INTERFACE [CASE...]");
    int other;
    pid_t child = begin_two(&other);
    int rank = child == 0;
    setenv("OMX_IFACES", arguments[1 + rank], 1);
    static struct end end;
    for (size_t i = 0; i < COUNT(CASES); i++) {
        bool wanted = count == 3;
        for (int at = 3; at < count; at++)
            wanted |= strcmp(arguments[at], CASES[i].name) == 0;
        if (!wanted)
            continue;
        if (rank == 0)
            fprintf(stderr, "%s\n", CASES[i].name);
        open_end(&end, other, rank, (struct wishes){.caps = FI_RMA | FI_ATOMIC});
        step(&end);
        CASES[i].run(&end);
        close_end(&end);
    }
    if (rank == 1)
        return 0;
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the other process failed");
    return 0;
}
