/* One end of a conversation over the provider: fabric, domain, address vector, queues and an endpoint, and a socket to the
 * other end's process for addresses and for steps that the two take together. */

#ifndef END_H
#define END_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Ends the program with a sentence if the condition does not hold. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold: ", __FILE__, __LINE__, #condition);                              \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Ends the program if a call of libfabric fails. */
#define FI(call)                                                                                                       \
    do {                                                                                                               \
        long result_ = (long) (call);                                                                                  \
        CHECK(result_ == 0, "%s", fi_strerror((int) -result_));                                                        \
    } while (0)

/* An operation takes no longer than this: a test that hangs tells where. */
#define LIMIT_S 20.0

struct end {
    /* The socket to the other process. */
    int other;
    /* 0: the process that speaks first. */
    int rank;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *tx, *rx;
    struct fid_ep *ep;
    /* The other end. */
    fi_addr_t peer;
    /* This end itself. */
    fi_addr_t own;
    /* Entries that were read while another one was waited for. */
    struct fi_cq_tagged_entry kept[4096];
    int kept_count;
};

/* What a test wants other than the usual. */
struct wishes {
    uint64_t caps;
    uint64_t tx_flags;
    /* Flags of the binding of both queues. */
    uint64_t bind_flags;
    enum fi_cq_format format;
    /* The sends that the endpoint is to hold. */
    size_t tx_size;
};

static inline double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double) time.tv_sec + (double) time.tv_nsec * 1e-9;
}

/* Waits until the other process is here, too. */
static inline void step(struct end *end) {
    char byte = 1;
    CHECK(write(end->other, &byte, 1) == 1, "the other process is gone");
    CHECK(read(end->other, &byte, 1) == 1, "the other process is gone");
}

/* Begins a second process, which gets 0 back, and gives each of the two a socket to the other one. */
static inline pid_t begin_two(int *other) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "a pair of sockets");
    pid_t child = fork();
    CHECK(child >= 0, "a process");
    *other = ends[child == 0];
    close(ends[child != 0]);
    return child;
}

static inline struct fi_info *hints(void) {
    struct fi_info *hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("mx");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    return hints;
}

static inline void open_end(struct end *end, int other, int rank, struct wishes wishes) {
    memset(end, 0, sizeof *end);
    end->other = other;
    end->rank = rank;
    struct fi_info *wanted = hints();
    wanted->caps |= wishes.caps;
    wanted->tx_attr->op_flags = wishes.tx_flags;
    wanted->tx_attr->size = wishes.tx_size;
    if (wishes.caps & FI_RMA)
        wanted->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    FI(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, wanted, &end->info));
    fi_freeinfo(wanted);
    FI(fi_fabric(end->info->fabric_attr, &end->fabric, NULL));
    FI(fi_domain(end->fabric, end->info, &end->domain, NULL));
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    FI(fi_av_open(end->domain, &av, &end->av, NULL));
    struct fi_cq_attr cq = {.format = wishes.format ? wishes.format : FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    FI(fi_cq_open(end->domain, &cq, &end->tx, NULL));
    FI(fi_cq_open(end->domain, &cq, &end->rx, NULL));
    FI(fi_endpoint(end->domain, end->info, &end->ep, NULL));
    FI(fi_ep_bind(end->ep, &end->av->fid, 0));
    FI(fi_ep_bind(end->ep, &end->tx->fid, FI_TRANSMIT | wishes.bind_flags));
    FI(fi_ep_bind(end->ep, &end->rx->fid, FI_RECV | wishes.bind_flags));
    FI(fi_enable(end->ep));
    char own[64], peer[64];
    size_t len = 0;
    CHECK(fi_getname(&end->ep->fid, NULL, &len) == -FI_ETOOSMALL, "a length is asked for");
    CHECK(len <= sizeof own && len % 8 == 0, "%zu bytes of address", len);
    FI(fi_getname(&end->ep->fid, own, &len));
    if (other >= 0) {
        CHECK(write(other, own, len) == (ssize_t) len, "the other process is gone");
        CHECK(read(other, peer, len) == (ssize_t) len, "the other process is gone");
        CHECK(fi_av_insert(end->av, peer, 1, &end->peer, 0, NULL) == 1, "the peer's address");
        CHECK(end->peer == 0, "numbers of addresses begin with 0");
    }
    CHECK(fi_av_insert(end->av, own, 1, &end->own, 0, NULL) == 1, "the end's own address");
}

static inline void close_end(struct end *end) {
    FI(fi_close(&end->ep->fid));
    FI(fi_close(&end->rx->fid));
    FI(fi_close(&end->tx->fid));
    FI(fi_close(&end->av->fid));
    FI(fi_close(&end->domain->fid));
    FI(fi_close(&end->fabric->fid));
    fi_freeinfo(end->info);
}

/* Makes progress on both queues; entries of the other one than is waited for are lost if they are not kept. */
static inline void progress(struct end *end) {
    CHECK(fi_cq_read(end->tx, NULL, 0) <= 0, "nothing was asked for");
    CHECK(fi_cq_read(end->rx, NULL, 0) <= 0, "nothing was asked for");
}

/* Repeats a call that may have to be tried again. */
#define AGAIN(end, call)                                                                                               \
    do {                                                                                                               \
        double until_ = now_s() + LIMIT_S;                                                                             \
        long again_;                                                                                                   \
        while ((again_ = (long) (call)) == -FI_EAGAIN) {                                                               \
            progress(end);                                                                                             \
            CHECK(now_s() < until_, "is still to be tried again");                                                     \
        }                                                                                                              \
        CHECK(again_ == 0, "%s", fi_strerror((int) -again_));                                                          \
    } while (0)

/* Waits for the next entry of a queue. */
static inline struct fi_cq_tagged_entry next_from(struct end *end, struct fid_cq *cq, fi_addr_t *source) {
    struct fi_cq_tagged_entry entry;
    double until = now_s() + LIMIT_S;
    for (;;) {
        ssize_t count = fi_cq_readfrom(cq, &entry, 1, source);
        if (count == 1)
            return entry;
        CHECK(count == -FI_EAGAIN, "%s", fi_strerror((int) -count));
        /* The other queue makes progress, too. */
        progress(end);
        CHECK(now_s() < until, "no completion in time");
    }
}

static inline struct fi_cq_tagged_entry next(struct end *end, struct fid_cq *cq) {
    fi_addr_t source;
    return next_from(end, cq, &source);
}

/* Waits for the next entry, which is a failure. */
static inline struct fi_cq_err_entry next_error(struct end *end, struct fid_cq *cq) {
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error;
    memset(&error, 0, sizeof error);
    double until = now_s() + 4 * LIMIT_S;
    for (;;) {
        ssize_t count = fi_cq_read(cq, &entry, 1);
        if (count == -FI_EAVAIL)
            break;
        CHECK(count == -FI_EAGAIN, "a completion where a failure is due: %zd", count);
        CHECK(now_s() < until, "no failure in time");
        progress(end);
    }
    CHECK(fi_cq_readerr(cq, &error, 0) == 1, "a failure that was told");
    return error;
}

/* Nothing is in a queue, also after some progress. */
static inline void nothing(struct end *end, struct fid_cq *cq) {
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 1000; i++) {
        ssize_t count = fi_cq_read(cq, &entry, 1);
        CHECK(count == -FI_EAGAIN, "an entry that nobody asked for: %zd", count);
        progress(end);
    }
}

/* The bytes of a message, which its number and length tell. */
static inline unsigned char *bytes_of(size_t len, unsigned number) {
    unsigned char *bytes = malloc(len + 1);
    for (size_t at = 0; at < len; at++)
        bytes[at] = (unsigned char) (at * 7 + at / 251 + number * 13 + len);
    return bytes;
}

static inline void check_bytes(const unsigned char *got, size_t len, unsigned number) {
    unsigned char *wanted = bytes_of(len, number);
    CHECK(memcmp(got, wanted, len) == 0, "the bytes of message %u of %zu bytes", number, len);
    free(wanted);
}

#endif
