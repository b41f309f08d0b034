/* What MPI implementations need of the provider (docs/spec/ofi-provider.md sections 4 and 5), one case after the other:
 *
 *     cases INTERFACE INTERFACE [CASE...]
 *
 * Two processes, each with its interface: two ends of a cable, or one interface for messages inside the host. */

#include "end.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static const size_t SIZES[] = {0,    1,    7,     8,     9,     119,    120,     121,     128,     129,    1024,
                               4088, 4096, 4097,  8192,  32760, 32768,  32769,   65536,   100000,  262144, 1048576,
                               3000001};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* Sends and waits until the memory may be used again. */
static void send_tagged(struct end *end, fi_addr_t to, const void *bytes, size_t len, uint64_t tag, uint64_t data) {
    char context;
    AGAIN(end, fi_tsenddata(end->ep, bytes, len, NULL, data, to, tag, &context));
    struct fi_cq_tagged_entry entry = next(end, end->tx);
    CHECK(entry.op_context == &context, "another send's context");
    CHECK((entry.flags & (FI_SEND | FI_TAGGED)) == (FI_SEND | FI_TAGGED), "flags %lx", entry.flags);
}

static void tagged(struct end *end) {
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        size_t len = SIZES[i];
        unsigned char *sent = bytes_of(len, (unsigned) i), *got = calloc(1, len + 1);
        uint64_t tag = 0x00abcdef01234500 + i;
        for (int turn = 0; turn < 2; turn++) {
            if (turn == end->rank) {
                send_tagged(end, end->peer, sent, len, tag, 0xfeedf000 + i);
            } else {
                char context;
                fi_addr_t source;
                AGAIN(end, fi_trecv(end->ep, got, len, NULL, end->peer, tag, 0, &context));
                struct fi_cq_tagged_entry entry = next_from(end, end->rx, &source);
                CHECK(entry.op_context == &context && entry.len == len && entry.buf == got, "%zu of %zu bytes", entry.len, len);
                CHECK(entry.tag == tag && entry.data == 0xfeedf000 + i, "tag %lx, data %lx", entry.tag, entry.data);
                CHECK(entry.flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA), "flags %lx", entry.flags);
                CHECK(source == end->peer, "source %lu", source);
                check_bytes(got, len, (unsigned) i);
            }
        }
        free(sent);
        free(got);
    }
}

static void pieces(struct end *end) {
    unsigned char *sent = bytes_of(300000, 1), *got = calloc(1, 300000);
    struct iovec out[3] = {{sent, 5}, {sent + 5, 100000}, {sent + 100005, 199995}};
    struct iovec in[4] = {{got, 1}, {got + 1, 0}, {got + 1, 299000}, {got + 299001, 999}};
    for (size_t len = 0; len <= 300000; len = len ? len * 10 : 30) {
        struct iovec first = {sent, len};
        struct fi_msg_tagged message = {.msg_iov = len == 300000 ? out : &first, .iov_count = len == 300000 ? 3 : 1,
                                        .addr = end->peer, .tag = len};
        if (end->rank == 0) {
            AGAIN(end, fi_tsendmsg(end->ep, &message, FI_COMPLETION));
            next(end, end->tx);
        } else {
            struct fi_msg_tagged receive = {.msg_iov = in, .iov_count = 4, .addr = FI_ADDR_UNSPEC, .tag = len};
            memset(got, 0, 300000);
            AGAIN(end, fi_trecvmsg(end->ep, &receive, FI_COMPLETION));
            struct fi_cq_tagged_entry entry = next(end, end->rx);
            CHECK(entry.len == len && !(entry.flags & FI_REMOTE_CQ_DATA), "%zu bytes, flags %lx", entry.len, entry.flags);
            CHECK(memcmp(got, sent, len) == 0, "the bytes of %zu", len);
        }
    }
    free(sent);
    free(got);
}

static void untagged(struct end *end) {
    /* A tagged receive with all bits ignored takes none of them. */
    unsigned char trap[8];
    char trap_context;
    AGAIN(end, fi_trecv(end->ep, trap, sizeof trap, NULL, FI_ADDR_UNSPEC, 0, ~0ul, &trap_context));
    step(end);
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        size_t len = SIZES[i];
        unsigned char *sent = bytes_of(len, (unsigned) i), *got = calloc(1, len + 1);
        if (end->rank == 0) {
            if (len <= end->info->tx_attr->inject_size) {
                AGAIN(end, fi_inject(end->ep, sent, len, end->peer));
                AGAIN(end, fi_injectdata(end->ep, sent, len, 77, end->peer));
                memset(sent, 0, len);
            } else {
                AGAIN(end, fi_send(end->ep, sent, len, NULL, end->peer, NULL));
                AGAIN(end, fi_senddata(end->ep, sent, len, NULL, 77, end->peer, NULL));
                next(end, end->tx);
                next(end, end->tx);
            }
        } else {
            for (int turn = 0; turn < 2; turn++) {
                AGAIN(end, fi_recv(end->ep, got, len, NULL, FI_ADDR_UNSPEC, NULL));
                struct fi_cq_tagged_entry entry = next(end, end->rx);
                CHECK(entry.flags == (FI_RECV | FI_MSG | (turn ? FI_REMOTE_CQ_DATA : 0)), "flags %lx", entry.flags);
                CHECK(entry.len == len && entry.data == (turn ? 77 : 0), "%zu bytes, data %lu", entry.len, entry.data);
                check_bytes(got, len, (unsigned) i);
            }
        }
        free(sent);
        free(got);
    }
    step(end);
    CHECK(fi_cancel(&end->ep->fid, &trap_context) == 0, "the trap took nothing");
    CHECK(next_error(end, end->rx).err == FI_ECANCELED, "a cancelled receive says so");
}

static void directed(struct end *end) {
    /* To oneself and to the peer under one tag: each receive takes its source's. */
    unsigned char own = (unsigned char) (10 + end->rank), peers = own, from_own = 0, from_peer = 0, from_any[2] = {0};
    char contexts[4];
    AGAIN(end, fi_trecv(end->ep, &from_peer, 1, NULL, end->peer, 5, 0, &contexts[0]));
    AGAIN(end, fi_trecv(end->ep, &from_own, 1, NULL, end->own, 5, 0, &contexts[1]));
    AGAIN(end, fi_tinject(end->ep, &own, 1, end->own, 5));
    step(end);
    AGAIN(end, fi_tinject(end->ep, &peers, 1, end->peer, 5));
    for (int i = 0; i < 2; i++) {
        fi_addr_t source;
        struct fi_cq_tagged_entry entry = next_from(end, end->rx, &source);
        CHECK(source == (entry.op_context == &contexts[0] ? end->peer : end->own), "source %lu", source);
    }
    CHECK(from_peer == 11 - end->rank && from_own == own, "%d and %d", from_peer, from_own);
    step(end);
    /* Unexpected ones: the receives take the second before the first. */
    AGAIN(end, fi_tinject(end->ep, &own, 1, end->own, 6));
    AGAIN(end, fi_tinject(end->ep, &peers, 1, end->peer, 6));
    step(end);
    for (int i = 0; i < 1000; i++)
        progress(end);
    AGAIN(end, fi_trecv(end->ep, &from_any[0], 1, NULL, end->peer, 6, 0, &contexts[2]));
    CHECK(next(end, end->rx).op_context == &contexts[2], "the peer's message");
    AGAIN(end, fi_trecv(end->ep, &from_any[1], 1, NULL, FI_ADDR_UNSPEC, 0, ~0ul, &contexts[3]));
    CHECK(next(end, end->rx).op_context == &contexts[3], "the own message");
    CHECK(from_any[0] == 11 - end->rank && from_any[1] == own, "%d and %d", from_any[0], from_any[1]);
}

static void ignored_bits(struct end *end) {
    unsigned char byte = 1, got[3] = {0};
    step(end);
    for (unsigned i = 0; i < 3; i++) {
        byte = (unsigned char) (i + 1);
        AGAIN(end, fi_tinject(end->ep, &byte, 1, end->peer, 0x1000 + i));
    }
    for (unsigned i = 0; i < 3; i++) {
        AGAIN(end, fi_trecv(end->ep, &got[i], 1, NULL, end->peer, 0x1000, i == 1 ? 0 : 0xff, NULL));
        if (i == 1) {
            /* The exact one took the message that the first receive left; it was the first receive's. */
            continue;
        }
        struct fi_cq_tagged_entry entry = next(end, end->rx);
        CHECK(entry.tag == 0x1000 + (i == 0 ? 0 : 1), "tag %lx", entry.tag);
    }
    byte = 9;
    step(end);
    AGAIN(end, fi_tinject(end->ep, &byte, 1, end->peer, 0x1000));
    CHECK(next(end, end->rx).tag == 0x1000 && got[1] == 9, "the exact receive waited for its message");
    /* One is left. */
    AGAIN(end, fi_trecv(end->ep, got, 1, NULL, end->peer, 0, ~0ul, NULL));
    CHECK(next(end, end->rx).tag == 0x1002, "the last message");
}

static bool peek(struct end *end, uint64_t tag, uint64_t flags, void *context, struct fi_cq_tagged_entry *found) {
    struct fi_msg_tagged message = {.addr = end->peer, .tag = tag, .context = context};
    FI(fi_trecvmsg(end->ep, &message, FI_PEEK | flags));
    struct fi_cq_tagged_entry entry;
    ssize_t count = fi_cq_read(end->rx, &entry, 1);
    if (count == 1) {
        CHECK(entry.op_context == context, "another context");
        *found = entry;
        return true;
    }
    CHECK(count == -FI_EAVAIL, "a peek always has an answer: %zd", count);
    struct fi_cq_err_entry error;
    memset(&error, 0, sizeof error);
    CHECK(fi_cq_readerr(end->rx, &error, 0) == 1, "a failure");
    CHECK(error.err == FI_ENOMSG && error.op_context == context, "error %d", error.err);
    return false;
}

static void peeked_and_claimed(struct end *end) {
    static const size_t lens[] = {0, 100, 5000, 20000, 200000, 2000000};
    char context;
    struct fi_cq_tagged_entry found;
    CHECK(!peek(end, 1, 0, &context, &found), "nothing was sent");
    step(end);
    for (size_t i = 0; i < COUNT(lens); i++) {
        size_t len = lens[i];
        for (int way = 0; way < 3; way++) {
            uint64_t tag = 100 + i * 4 + (uint64_t) way;
            if (end->rank == 0) {
                unsigned char *sent = bytes_of(len, (unsigned) tag);
                send_tagged(end, end->peer, sent, len, tag, 4000 + tag);
                free(sent);
                continue;
            }
            /* Looked at again and again, then received, claimed, or dropped. */
            double until = now_s() + LIMIT_S;
            while (!peek(end, tag, 0, &context, &found))
                CHECK(now_s() < until, "the message does not come");
            CHECK(peek(end, tag, 0, &context, &found), "it stays");
            CHECK(found.len == len && found.tag == tag && found.data == 4000 + tag, "%zu bytes, data %lu", found.len, found.data);
            CHECK(found.flags & FI_REMOTE_CQ_DATA, "flags %lx", found.flags);
            unsigned char *got = calloc(1, len + 1);
            struct iovec piece = {got, len};
            if (way == 0) {
                AGAIN(end, fi_trecv(end->ep, got, len, NULL, end->peer, tag, 0, &context));
            } else {
                CHECK(peek(end, tag, way == 1 ? FI_CLAIM : FI_DISCARD, &context, &found), "it can be claimed or dropped");
                char other;
                CHECK(!peek(end, tag, 0, &other, &found), "nobody finds it any more");
                /* As Open MPI does: nothing of this but the context counts. */
                struct fi_msg_tagged claim = {.msg_iov = &piece, .iov_count = 1, .context = &context};
                if (way == 1)
                    FI(fi_trecvmsg(end->ep, &claim, FI_CLAIM | FI_COMPLETION));
            }
            if (way != 2) {
                struct fi_cq_tagged_entry entry = next(end, end->rx);
                CHECK(entry.op_context == &context && entry.len == len && entry.data == 4000 + tag, "%zu bytes", entry.len);
                check_bytes(got, len, (unsigned) tag);
            }
            free(got);
        }
    }
    /* A claimed message that is dropped later is told like any other receive, as libfabric's own providers do. */
    if (end->rank == 0) {
        unsigned char byte = 1;
        send_tagged(end, end->peer, &byte, 1, 900, 1);
        step(end);
    } else {
        double until = now_s() + LIMIT_S;
        while (!peek(end, 900, FI_CLAIM, &context, &found))
            CHECK(now_s() < until, "the message does not come");
        struct fi_msg_tagged drop = {.context = &context};
        FI(fi_trecvmsg(end->ep, &drop, FI_CLAIM | FI_DISCARD | FI_COMPLETION));
        CHECK(next(end, end->rx).op_context == &context, "another context");
        nothing(end, end->rx);
        step(end);
    }
    struct fi_msg_tagged claim = {.context = &claim};
    CHECK(fi_trecvmsg(end->ep, &claim, FI_CLAIM) == -FI_EINVAL, "nothing was claimed under this context");
}

static void cancelled(struct end *end) {
    char contexts[2], byte = 3, got = 0;
    AGAIN(end, fi_trecv(end->ep, &got, 1, NULL, end->peer, 7, 0, &contexts[0]));
    AGAIN(end, fi_trecv(end->ep, &got, 1, NULL, end->peer, 7, 0, &contexts[1]));
    FI(fi_cancel(&end->ep->fid, &contexts[0]));
    struct fi_cq_err_entry error = next_error(end, end->rx);
    CHECK(error.err == FI_ECANCELED && error.op_context == &contexts[0], "error %d", error.err);
    CHECK(fi_cancel(&end->ep->fid, &contexts[0]) == -FI_ENOENT, "cancelled already");
    step(end);
    AGAIN(end, fi_tinject(end->ep, &byte, 1, end->peer, 7));
    CHECK(next(end, end->rx).op_context == &contexts[1] && got == 3, "the other receive goes on");
    CHECK(fi_cancel(&end->ep->fid, &contexts[1]) == -FI_ENOENT, "over already");
}

static void truncated(struct end *end) {
    static const size_t lens[] = {100, 5000, 100000, 1000000};
    for (size_t i = 0; i < COUNT(lens); i++) {
        size_t len = lens[i];
        unsigned char *sent = bytes_of(len, (unsigned) i), got[64];
        for (int unexpected = 0; unexpected < 2; unexpected++) {
            if (end->rank == 0) {
                if (!unexpected)
                    step(end);
                AGAIN(end, fi_tsenddata(end->ep, sent, len, NULL, 33, end->peer, 8, NULL));
                if (unexpected)
                    step(end);
                next(end, end->tx);
                send_tagged(end, end->peer, sent, 10, 9, 1);
            } else {
                if (unexpected)
                    step(end);
                AGAIN(end, fi_trecv(end->ep, got, sizeof got, NULL, end->peer, 8, 0, &sent));
                if (!unexpected)
                    step(end);
                struct fi_cq_err_entry error = next_error(end, end->rx);
                CHECK(error.err == FI_ETRUNC && error.len == sizeof got && error.olen == len - sizeof got, "error %d, %zu + %zu",
                      error.err, error.len, error.olen);
                CHECK(error.op_context == &sent && error.data == 33 && error.tag == 8, "data %lu, tag %lu", error.data, error.tag);
                CHECK(memcmp(got, sent, sizeof got) == 0, "the beginning");
                AGAIN(end, fi_trecv(end->ep, got, sizeof got, NULL, end->peer, 9, 0, NULL));
                CHECK(next(end, end->rx).len == 10, "the next message is whole");
            }
        }
        free(sent);
    }
}

static void many_receives_in_one_buffer(struct end *end) {
    enum { ROOM = 100000, MIN = 4000, MESSAGES = 400 };
    if (end->rank == 0) {
        step(end);
        for (unsigned i = 0; i < MESSAGES; i++) {
            size_t len = (i * 37) % 3500;
            unsigned char *sent = bytes_of(len, i);
            AGAIN(end, fi_send(end->ep, sent, len, NULL, end->peer, NULL));
            next(end, end->tx);
            free(sent);
            if (i == MESSAGES / 2)
                step(end);
        }
        return;
    }
    size_t min = MIN, got_min = 0, got_min_len = sizeof got_min;
    FI(fi_setopt(&end->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof min));
    FI(fi_getopt(&end->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &got_min, &got_min_len));
    CHECK(got_min == MIN, "%zu", got_min);
    static unsigned char buffers[3][ROOM];
    size_t used[3] = {0};
    int posted = 0;
    for (; posted < 2; posted++) {
        struct iovec piece = {buffers[posted], ROOM};
        struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &used[posted]};
        AGAIN(end, fi_recvmsg(end->ep, &message, FI_MULTI_RECV | FI_COMPLETION));
    }
    step(end);
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct fi_cq_tagged_entry entry = next(end, end->rx);
        size_t len = (i * 37) % 3500;
        int at = (int) ((size_t *) entry.op_context - used);
        CHECK(at >= 0 && at < 3 && entry.len == len && entry.buf == buffers[at] + used[at], "message %u in buffer %d", i, at);
        check_bytes(entry.buf, len, i);
        used[at] += len;
        CHECK(!!(entry.flags & FI_MULTI_RECV) == (ROOM - used[at] < MIN), "given back with %zu bytes left", ROOM - used[at]);
        if (entry.flags & FI_MULTI_RECV) {
            used[at] = 0;
            struct iovec piece = {buffers[at], ROOM};
            struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &used[at]};
            AGAIN(end, fi_recvmsg(end->ep, &message, FI_MULTI_RECV | FI_COMPLETION));
        }
        if (i == MESSAGES / 2)
            step(end);
    }
    for (int i = 0; i < 2; i++) {
        FI(fi_cancel(&end->ep->fid, &used[i]));
        CHECK(next_error(end, end->rx).err == FI_ECANCELED, "both buffers can be cancelled");
    }
}

static void flood(struct end *end) {
    enum { MESSAGES = 500 };
    if (end->rank == 0) {
        for (unsigned i = 0; i < MESSAGES; i++)
            AGAIN(end, fi_tinjectdata(end->ep, &i, sizeof i, i, end->peer, i));
        step(end);
        return;
    }
    step(end);
    for (unsigned i = MESSAGES; i-- > 0;) {
        unsigned got = 0;
        AGAIN(end, fi_trecv(end->ep, &got, sizeof got, NULL, end->peer, i, 0, NULL));
        struct fi_cq_tagged_entry entry = next(end, end->rx);
        CHECK(got == i && entry.data == i, "message %u for %u", got, i);
    }
}

static void in_order(struct end *end) {
    enum { MESSAGES = 300 };
    static unsigned char large[60000];
    for (unsigned i = 0; i < MESSAGES; i++) {
        size_t len = i % 7 == 0 ? sizeof large : i % 5 == 0 ? 9000 : 4;
        if (end->rank == 0) {
            memcpy(large, &i, sizeof i);
            AGAIN(end, fi_tsend(end->ep, large, len, NULL, end->peer, 1, NULL));
            next(end, end->tx);
        } else {
            unsigned got = 0;
            AGAIN(end, fi_trecv(end->ep, large, sizeof large, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
            struct fi_cq_tagged_entry entry = next(end, end->rx);
            memcpy(&got, large, sizeof got);
            CHECK(got == i && entry.len == len, "message %u for %u", got, i);
        }
    }
}

static void to_itself(struct end *end) {
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        size_t len = SIZES[i];
        unsigned char *sent = bytes_of(len, 3), *got = calloc(1, len + 1);
        /* Over before it is received: a program that waits first does not hang. */
        send_tagged(end, end->own, sent, len, 2, 6);
        memset(sent, 0, len);
        AGAIN(end, fi_trecv(end->ep, got, len, NULL, end->own, 2, 0, NULL));
        CHECK(next(end, end->rx).len == len, "%zu bytes", len);
        check_bytes(got, len, 3);
        free(sent);
        free(got);
    }
}

static void completion_levels(struct end *end) {
    unsigned char byte = 4, got;
    struct iovec piece = {&byte, 1};
    struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .tag = 3};
    if (end->rank == 0) {
        AGAIN(end, fi_tsendmsg(end->ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
        CHECK(next(end, end->tx).flags & FI_SEND, "delivered without a receive");
        AGAIN(end, fi_tsendmsg(end->ep, &message, FI_COMPLETION | FI_MATCH_COMPLETE));
        nothing(end, end->tx);
        step(end);
        CHECK(next(end, end->tx).flags & FI_SEND, "matched");
    } else {
        /* The helper thread acknowledges. */
        step(end);
        for (int i = 0; i < 2; i++) {
            AGAIN(end, fi_trecv(end->ep, &got, 1, NULL, end->peer, 3, 0, NULL));
            CHECK(next(end, end->rx).len == 1 && got == 4, "received");
        }
    }
}

static void selective(struct end *end) {
    unsigned char byte = 4, got;
    if (end->rank == 0) {
        struct iovec piece = {&byte, 1};
        struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .tag = 3};
        AGAIN(end, fi_tsendmsg(end->ep, &message, 0));
        nothing(end, end->tx);
        AGAIN(end, fi_tsendmsg(end->ep, &message, FI_COMPLETION));
        next(end, end->tx);
        /* The endpoint's flags count for calls without any. */
        AGAIN(end, fi_tsend(end->ep, &byte, 1, NULL, end->peer, 3, NULL));
        next(end, end->tx);
        AGAIN(end, fi_tinject(end->ep, &byte, 1, end->peer, 3));
        nothing(end, end->tx);
        uint64_t flags = FI_TRANSMIT;
        FI(fi_control(&end->ep->fid, FI_GETOPSFLAG, &flags));
        CHECK(flags == FI_COMPLETION, "flags %lx", flags);
    } else {
        for (int i = 0; i < 4; i++) {
            struct iovec piece = {&got, 1};
            struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .tag = 3};
            AGAIN(end, fi_trecvmsg(end->ep, &message, FI_COMPLETION));
            next(end, end->rx);
        }
    }
}

/* An endpoint that shares the end's queues and addresses. */
static struct fid_ep *open_another(struct end *end) {
    struct fid_ep *ep;
    FI(fi_endpoint(end->domain, end->info, &ep, NULL));
    FI(fi_ep_bind(ep, &end->av->fid, 0));
    FI(fi_ep_bind(ep, &end->tx->fid, FI_TRANSMIT));
    FI(fi_ep_bind(ep, &end->rx->fid, FI_RECV));
    FI(fi_enable(ep));
    return ep;
}

static void several_endpoints(struct end *end) {
    /* All of them share queues and addresses with the end's own: each message arrives at the endpoint that it was sent to. */
    enum { MORE = 3 };
    struct fid_ep *eps[MORE];
    fi_addr_t to[MORE];
    char own[64], other[64], contexts[MORE];
    unsigned char got[MORE] = {0};
    for (int i = 0; i < MORE; i++) {
        eps[i] = open_another(end);
        size_t len = sizeof own;
        FI(fi_getname(&eps[i]->fid, own, &len));
        CHECK(write(end->other, own, len) == (ssize_t) len && read(end->other, other, len) == (ssize_t) len, "addresses");
        CHECK(fi_av_insert(end->av, other, 1, &to[i], 0, NULL) == 1, "the other's");
        AGAIN(end, fi_trecv(eps[i], &got[i], 1, NULL, FI_ADDR_UNSPEC, 4, 0, &contexts[i]));
    }
    step(end);
    for (int i = MORE; i-- > 0;) {
        /* From another endpoint than the one of the same number. */
        unsigned char byte = (unsigned char) (50 + i);
        AGAIN(end, fi_tinject(eps[(i + 1) % MORE], &byte, 1, to[i], 4));
    }
    for (int i = 0; i < MORE; i++) {
        fi_addr_t source;
        struct fi_cq_tagged_entry entry = next_from(end, end->rx, &source);
        long at = (char *) entry.op_context - contexts;
        CHECK(at >= 0 && at < MORE && got[at] == 50 + at && source == to[(at + 1) % MORE], "endpoint %ld, source %lu", at, source);
    }
    step(end);
    for (int i = 0; i < MORE; i++)
        FI(fi_close(&eps[i]->fid));
}

static void one_queue_for_both(struct end *end) {
    struct fid_ep *ep;
    struct fid_cq *queue;
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    FI(fi_cq_open(end->domain, &attr, &queue, NULL));
    FI(fi_endpoint(end->domain, end->info, &ep, NULL));
    FI(fi_ep_bind(ep, &end->av->fid, 0));
    FI(fi_ep_bind(ep, &queue->fid, FI_TRANSMIT | FI_RECV));
    FI(fi_enable(ep));
    char own[64], other[64], sent_context, received_context;
    size_t len = sizeof own;
    fi_addr_t to;
    FI(fi_getname(&ep->fid, own, &len));
    CHECK(write(end->other, own, len) == (ssize_t) len && read(end->other, other, len) == (ssize_t) len, "addresses");
    CHECK(fi_av_insert(end->av, other, 1, &to, 0, NULL) == 1, "the other's");
    unsigned char bytes[3] = {1, 2, 3}, got[3] = {0};
    AGAIN(end, fi_trecv(ep, got, 3, NULL, FI_ADDR_UNSPEC, 4, 0, &received_context));
    AGAIN(end, fi_tsend(ep, bytes, 3, NULL, to, 4, &sent_context));
    bool was_sent = false, was_received = false;
    while (!was_sent || !was_received) {
        struct fi_cq_tagged_entry entry = next(end, queue);
        bool is_sent = entry.flags & FI_SEND;
        CHECK(is_sent != !!(entry.flags & FI_RECV), "flags %lx", entry.flags);
        CHECK(entry.op_context == (is_sent ? &sent_context : &received_context), "another context");
        CHECK(is_sent ? !was_sent : !was_received, "told twice");
        was_sent |= is_sent;
        was_received |= !is_sent;
    }
    CHECK(memcmp(got, bytes, 3) == 0, "the bytes");
    step(end);
    FI(fi_close(&ep->fid));
    FI(fi_close(&queue->fid));
}

static void injected_with_completion(struct end *end) {
    /* The memory is free at once, and the completion is told all the same. */
    for (size_t len = 0; len <= end->info->tx_attr->inject_size; len = len ? len * 4 : 1) {
        unsigned char *sent = bytes_of(len, 5), *got = calloc(1, len + 1);
        char context;
        if (end->rank == 0) {
            struct iovec piece = {sent, len};
            struct fi_msg_tagged tagged = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .tag = 3, .context = &context};
            struct fi_msg untagged = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .context = &context};
            AGAIN(end, fi_tsendmsg(end->ep, &tagged, FI_INJECT | FI_COMPLETION));
            memset(sent, 0, len);
            step(end);
            CHECK(next(end, end->tx).op_context == &context, "another context");
            free(sent);
            sent = bytes_of(len, 5);
            piece.iov_base = sent;
            AGAIN(end, fi_sendmsg(end->ep, &untagged, FI_INJECT | FI_COMPLETION));
            memset(sent, 0, len);
            CHECK(next(end, end->tx).op_context == &context, "another context");
        } else {
            step(end);
            AGAIN(end, fi_trecv(end->ep, got, len, NULL, end->peer, 3, 0, NULL));
            next(end, end->rx);
            check_bytes(got, len, 5);
            memset(got, 0, len);
            AGAIN(end, fi_recv(end->ep, got, len, NULL, FI_ADDR_UNSPEC, NULL));
            next(end, end->rx);
            check_bytes(got, len, 5);
        }
        free(sent);
        free(got);
    }
}

static void more_than_fits(struct end *end) {
    /* Nobody reads completions or receives until the sender is told to try again, or until it has sent far more than its queue is
     * said to hold. Then everything arrives, in order, and each completion is told once. */
    unsigned limit = (unsigned) end->info->tx_attr->size * 2, count = 0;
    if (end->rank == 0) {
        static unsigned numbers[1 << 16];
        CHECK(limit <= COUNT(numbers), "room for %u", limit);
        long result = 0;
        /* While there is no connection the queue holds what it is said to hold, and no more. */
        for (count = 0; count < limit; count++) {
            numbers[count] = count;
            result = fi_tsend(end->ep, &numbers[count], sizeof count, NULL, end->peer, 6, &numbers[count]);
            if (result == -FI_EAGAIN)
                break;
            CHECK(result == 0, "%s", fi_strerror((int) -result));
        }
        CHECK(write(end->other, &count, sizeof count) == sizeof count, "the other process is gone");
        for (unsigned i = 0; i < count; i++) {
            unsigned *number = next(end, end->tx).op_context;
            CHECK(number >= numbers && number < numbers + count && *number != ~0u, "told twice, or not sent");
            *number = ~0u;
        }
        nothing(end, end->tx);
        step(end);
    } else {
        CHECK(read(end->other, &count, sizeof count) == sizeof count && count > 0, "the other process is gone");
        for (unsigned i = 0; i < count; i++) {
            unsigned got = ~0u;
            AGAIN(end, fi_trecv(end->ep, &got, sizeof got, NULL, end->peer, 6, 0, NULL));
            next(end, end->rx);
            CHECK(got == i, "message %u for %u", got, i);
        }
        step(end);
    }
}

enum { FIRST_SENDS = 16 };

/* One way to send, and whether it is told when it is over. */
static long send_somehow(struct fid_ep *ep, int way, const void *bytes, size_t len, fi_addr_t to, void *context, bool *is_told) {
    struct iovec halves[2] = {{(void *) bytes, len / 2}, {(char *) bytes + len / 2, len - len / 2}};
    struct fi_msg_tagged tagged = {.msg_iov = halves, .iov_count = 2, .addr = to, .tag = 5, .context = context};
    struct fi_msg untagged = {.msg_iov = halves, .iov_count = 2, .addr = to, .context = context};
    *is_told = true;
    switch (way) {
    case 0: return fi_tsend(ep, bytes, len, NULL, to, 5, context);
    case 1: return fi_tsendv(ep, halves, NULL, 2, to, 5, context);
    case 2: return fi_tsendmsg(ep, &tagged, FI_COMPLETION);
    case 3: return fi_tsendmsg(ep, &tagged, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    case 4: return fi_tsendmsg(ep, &tagged, FI_COMPLETION | FI_MATCH_COMPLETE);
    case 5: return fi_tsendmsg(ep, &tagged, FI_COMPLETION | FI_INJECT);
    case 6: return fi_tsenddata(ep, bytes, len, NULL, 1, to, 5, context);
    case 7: return fi_send(ep, bytes, len, NULL, to, context);
    case 8: return fi_sendv(ep, halves, NULL, 2, to, context);
    case 9: return fi_sendmsg(ep, &untagged, FI_COMPLETION);
    case 10: return fi_sendmsg(ep, &untagged, FI_COMPLETION | FI_INJECT);
    case 11: return fi_senddata(ep, bytes, len, NULL, 1, to, context);
    }
    *is_told = false;
    switch (way) {
    case 12: return fi_tinject(ep, bytes, len, to, 5);
    case 13: return fi_tinjectdata(ep, bytes, len, 1, to, 5);
    case 14: return fi_inject(ep, bytes, len, to);
    case 15: return fi_injectdata(ep, bytes, len, 1, to);
    }
    return -FI_EINVAL;
}

/* The first send of an endpoint to its peer is taken, and so are those behind it; the endpoint may be closed at once. */
static void first_sends(struct end *end) {
    for (int way = 0; way < FIRST_SENDS; way++) {
        bool is_injected = way == 5 || way == 10 || way >= 12, is_tagged = way < 7 || way == 12 || way == 13;
        for (size_t i = 0; i < COUNT(SIZES) && (!is_injected || SIZES[i] <= end->info->tx_attr->inject_size); i += 3) {
            size_t len = SIZES[i];
            unsigned char *bytes = bytes_of(len, (unsigned) way), contexts[4];
            if (end->rank == 0) {
                struct fid_ep *ep = open_another(end);
                bool is_told;
                for (int turn = 0; turn < 4; turn++)
                    CHECK(send_somehow(ep, way, bytes, len, end->peer, &contexts[turn], &is_told) == 0, "way %d, %zu bytes", way, len);
                if (is_injected)
                    memset(bytes, 0xee, len);
                for (int turn = 0; turn < 4 && is_told; turn++) {
                    unsigned char *context = next(end, end->tx).op_context;
                    CHECK(context >= contexts && context < contexts + 4, "another context");
                }
                FI(fi_close(&ep->fid));
            } else {
                for (int turn = 0; turn < 4; turn++) {
                    unsigned char *got = calloc(1, len + 1);
                    if (is_tagged)
                        FI(fi_trecv(end->ep, got, len, NULL, FI_ADDR_UNSPEC, 5, 0, NULL));
                    else
                        FI(fi_recv(end->ep, got, len, NULL, FI_ADDR_UNSPEC, NULL));
                    CHECK(next(end, end->rx).len == len, "way %d, %zu bytes", way, len);
                    check_bytes(got, len, (unsigned) way);
                    free(got);
                }
            }
            free(bytes);
        }
    }
}

/* Messages that wait for a connection arrive in the order of their sends, before those that were sent when it was there. */
static void first_sends_in_order(struct end *end) {
    enum { MESSAGES = 300 };
    static unsigned numbers[MESSAGES][20000];
    for (unsigned i = 0; i < MESSAGES; i++) {
        size_t len = i % 7 == 3 ? sizeof numbers[i] : i % 5 == 2 ? 4000 : sizeof i;
        if (end->rank == 0) {
            numbers[i][0] = i;
            if (len <= end->info->tx_attr->inject_size && i % 2) {
                FI(fi_tinject(end->ep, numbers[i], len, end->peer, 5));
                numbers[i][0] = ~0u;
            } else {
                FI(fi_tsend(end->ep, numbers[i], len, NULL, end->peer, 5, NULL));
            }
        } else {
            FI(fi_trecv(end->ep, numbers[i], len, NULL, end->peer, 5, 0, NULL));
            CHECK(next(end, end->rx).len == len && numbers[i][0] == i, "message %u for %u", numbers[i][0], i);
        }
    }
    step(end);
}

/* A message that was taken before there was a connection arrives, though the sender does not call again for long. */
static void first_send_of_a_busy_program(struct end *end) {
    unsigned char byte = 7, got = 0;
    if (end->rank == 0) {
        FI(fi_tinject(end->ep, &byte, 1, end->peer, 5));
        step(end);
    } else {
        FI(fi_trecv(end->ep, &got, 1, NULL, end->peer, 5, 0, NULL));
        next(end, end->rx);
        CHECK(got == byte, "the byte");
        step(end);
    }
}

static void counters(struct end *end) {
    /* An endpoint of its own, which reports to counters alone. */
    struct fid_cntr *sent, *received;
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    FI(fi_cntr_open(end->domain, &attr, &sent, NULL));
    FI(fi_cntr_open(end->domain, &attr, &received, NULL));
    struct fid_ep *ep;
    FI(fi_endpoint(end->domain, end->info, &ep, NULL));
    FI(fi_ep_bind(ep, &end->av->fid, 0));
    FI(fi_ep_bind(ep, &end->tx->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
    FI(fi_ep_bind(ep, &end->rx->fid, FI_RECV | FI_SELECTIVE_COMPLETION));
    FI(fi_ep_bind(ep, &sent->fid, FI_SEND));
    FI(fi_ep_bind(ep, &received->fid, FI_RECV));
    FI(fi_enable(ep));
    char own[64], other[64];
    size_t len = sizeof own;
    fi_addr_t to;
    FI(fi_getname(&ep->fid, own, &len));
    CHECK(write(end->other, own, len) == (ssize_t) len && read(end->other, other, len) == (ssize_t) len, "addresses");
    CHECK(fi_av_insert(end->av, other, 1, &to, 0, NULL) == 1, "the other's");
    unsigned char bytes[10], got[10] = {0};
    struct iovec piece = {got, 10}, out = {bytes, 10};
    struct fi_msg receive = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    struct fi_msg message = {.msg_iov = &out, .iov_count = 1, .addr = to};
    for (int i = 1; i <= 5; i++) {
        AGAIN(end, fi_recvmsg(ep, &receive, 0));
        AGAIN(end, fi_sendmsg(ep, &message, 0));
        FI(fi_cntr_wait(sent, (uint64_t) i, 20000));
        FI(fi_cntr_wait(received, (uint64_t) i, 20000));
        CHECK(fi_cntr_read(sent) == (uint64_t) i && fi_cntr_readerr(sent) == 0, "%lu sent", fi_cntr_read(sent));
    }
    CHECK(fi_cntr_wait(sent, 6, 10) == -FI_ETIMEDOUT, "a sixth was not sent");
    FI(fi_cntr_set(sent, 100));
    FI(fi_cntr_add(sent, 11));
    CHECK(fi_cntr_read(sent) == 111, "%lu", fi_cntr_read(sent));
    step(end);
    FI(fi_close(&ep->fid));
    FI(fi_close(&sent->fid));
    FI(fi_close(&received->fid));
}

static void waiting(struct end *end) {
    struct fi_cq_tagged_entry entry;
    unsigned char byte = 1, got;
    double begin = now_s();
    CHECK(fi_cq_sread(end->rx, &entry, 1, NULL, 50) == -FI_EAGAIN && now_s() - begin >= 0.049, "a time limit");
    AGAIN(end, fi_trecv(end->ep, &got, 1, NULL, end->peer, 1, 0, NULL));
    if (end->rank == 0) {
        step(end);
        AGAIN(end, fi_tinject(end->ep, &byte, 1, end->peer, 1));
        CHECK(fi_cq_sread(end->rx, &entry, 1, NULL, 20000) == 1, "an answer");
    } else {
        step(end);
        CHECK(fi_cq_sread(end->rx, &entry, 1, NULL, -1) == 1, "a message");
        AGAIN(end, fi_tinject(end->ep, &byte, 1, end->peer, 1));
    }
    FI(fi_cq_signal(end->rx));
    CHECK(fi_cq_sread(end->rx, &entry, 1, NULL, 20000) == -FI_EAGAIN, "a signal ends the wait");
}

struct thread {
    struct end *end;
    uint64_t tag;
    pthread_mutex_t *lock;
    volatile int *done;
};

static void *converse(void *argument) {
    struct thread *thread = argument;
    struct end *end = thread->end;
    for (unsigned i = 0; i < 200; i++) {
        unsigned got = 0;
        volatile int over = 0;
        double until = now_s() + LIMIT_S;
        while (fi_trecv(end->ep, &got, sizeof got, NULL, end->peer, thread->tag, 0, (void *) &over) == -FI_EAGAIN)
            ;
        while (fi_tinject(end->ep, &i, sizeof i, end->peer, thread->tag) == -FI_EAGAIN)
            ;
        while (!over) {
            struct fi_cq_tagged_entry entry;
            if (fi_cq_read(end->rx, &entry, 1) == 1)
                *(volatile int *) entry.op_context = 1;
            CHECK(now_s() < until, "a thread waits for message %u", i);
        }
        CHECK(got == i, "message %u for %u", got, i);
    }
    return NULL;
}

static void threads(struct end *end) {
    pthread_t ids[4];
    struct thread list[4];
    for (unsigned i = 0; i < 4; i++) {
        list[i] = (struct thread){.end = end, .tag = 50 + i};
        CHECK(pthread_create(&ids[i], NULL, converse, &list[i]) == 0, "a thread");
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
}

/* The last messages before the end are delivered, though the sender closes at once. */
static void last_words(struct end *end) {
    enum { MESSAGES = 200 };
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (end->rank == 0) {
            AGAIN(end, fi_tinject(end->ep, &i, sizeof i, end->peer, 99));
        } else {
            unsigned got = 0;
            AGAIN(end, fi_trecv(end->ep, &got, sizeof got, NULL, end->peer, 99, 0, NULL));
            next(end, end->rx);
            CHECK(got == i, "message %u for %u", got, i);
        }
    }
}

static const struct {
    const char *name;
    void (*run)(struct end *end);
    struct wishes wishes;
} CASES[] = {
    {"tagged", tagged, {.caps = FI_SOURCE | FI_DIRECTED_RECV}},
    {"pieces", pieces, {0}},
    {"untagged", untagged, {0}},
    {"directed", directed, {.caps = FI_SOURCE | FI_DIRECTED_RECV}},
    {"ignored_bits", ignored_bits, {0}},
    {"peeked_and_claimed", peeked_and_claimed, {.caps = FI_DIRECTED_RECV}},
    {"cancelled", cancelled, {0}},
    {"truncated", truncated, {0}},
    {"many_receives_in_one_buffer", many_receives_in_one_buffer, {.caps = FI_MULTI_RECV}},
    {"flood", flood, {0}},
    {"in_order", in_order, {0}},
    {"to_itself", to_itself, {.caps = FI_DIRECTED_RECV}},
    {"completion_levels", completion_levels, {0}},
    {"selective", selective, {.tx_flags = FI_COMPLETION, .bind_flags = FI_SELECTIVE_COMPLETION}},
    {"several_endpoints", several_endpoints, {.caps = FI_SOURCE}},
    {"one_queue_for_both", one_queue_for_both, {0}},
    {"injected_with_completion", injected_with_completion, {0}},
    {"more_than_fits", more_than_fits, {0}},
    {"first_sends", first_sends, {0}},
    {"first_sends_in_order", first_sends_in_order, {0}},
    {"first_send_of_a_busy_program", first_send_of_a_busy_program, {0}},
    {"counters", counters, {0}},
    {"waiting", waiting, {0}},
    {"threads", threads, {0}},
    {"last_words", last_words, {0}},
};

int main(int count, char **arguments) {
    CHECK(count >= 3, "usage: cases INTERFACE INTERFACE [CASE...]");
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
        open_end(&end, other, rank, CASES[i].wishes);
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
