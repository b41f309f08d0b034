// What every check of the conformance program uses: the communicator of the check, deterministic message contents, and
// the reporting of failures. The program itself is ../conformance.c.
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

// A duplicate of MPI_COMM_WORLD that only the running check uses, so that a stray message of one check cannot match a
// receive of the next one.
extern MPI_Comm comm;
extern int rank;
extern int ranks;

// Records that the running check failed on this rank; the first reason is the one that is printed. The check goes on, so
// that the other ranks do not wait for messages that would never be sent.
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Records that the running check cannot be carried out here. All ranks must come to this conclusion.
void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Says what the check does now; the report of a hang repeats it. Not to be called by several threads.
void step(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define EXPECT(condition, ...)        \
    do {                              \
        if (!(condition)) {           \
            fail(__VA_ARGS__);        \
        }                             \
    } while (0)

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

// Zeroed memory with guard bytes behind it, which `free_bytes` checks.
unsigned char *new_bytes(size_t length);
void free_bytes(unsigned char *bytes, size_t length);

// Fills a buffer with contents that depend on the seed and on the position.
void fill(void *buffer, size_t length, unsigned seed);
void expect_filled(const void *buffer, size_t length, unsigned seed, const char *what);

// The seed of message number `number` from rank `source`.
unsigned seed_of(int source, int number);

// Checks source, tag and number of bytes of a status.
void expect_status(const MPI_Status *status, int source, int tag, size_t bytes, const char *what);

// The neighbours in the ring of all ranks.
int right(void);
int left(void);

// Sends an empty message, and waits for one.
void signal_peer(int peer, int tag);
void await_peer(int peer, int tag);

// MPI_Waitall without statuses.
void wait_all(int count, MPI_Request *requests);

// Computes for about so many seconds without calling MPI.
void compute_for(double seconds);

typedef void check_function(void);

// point_to_point.c
check_function check_ring_sizes, check_any_source, check_status, check_tag_selection, check_buffer_reuse, check_all_pairs,
    check_ssend_eager, check_ssend_large, check_bsend, check_flood, check_order, check_order_posted, check_self_sizes,
    check_self_sendrecv, check_self_probe, check_persistent, check_large_message, check_busy_receiver, check_busy_sender;

// probe.c
check_function check_probe_eager, check_probe_large, check_iprobe_eager, check_iprobe_large, check_mprobe_eager,
    check_mprobe_large, check_improbe_eager, check_improbe_large, check_probe_no_message;

// errors.c
check_function check_truncate_unexpected_eager, check_truncate_unexpected_large, check_truncate_posted_eager,
    check_truncate_posted_large, check_truncate_mrecv, check_truncate_waitall, check_cancel, check_cancel_middle,
    check_cancel_matched;

// requests.c
check_function check_waitany, check_waitsome, check_waitall, check_testany, check_testsome, check_testall;

// datatypes.c
check_function check_vector_eager, check_vector_large, check_struct_eager, check_struct_large, check_hindexed_eager,
    check_hindexed_large;

// threads.c
check_function check_threads_tags, check_threads_communicators, check_threads_large, check_threads_probe,
    check_threads_collectives;

// collectives.c
check_function check_barrier, check_bcast, check_reduce, check_allreduce, check_reduce_not_commutative,
    check_reduce_scatter, check_scan, check_gather, check_scatter, check_allgather, check_alltoall, check_alltoallw;

// nonblocking.c
check_function check_ibarrier, check_ibcast, check_iallreduce, check_ialltoall, check_igather_iscatter,
    check_nonblocking_at_once;

// communicators.c
check_function check_comm_split, check_comm_dup, check_comm_group, check_intercommunicator, check_cartesian;

// one_sided.c
check_function check_put_fence, check_get_fence, check_put_large, check_get_large, check_accumulate_fence,
    check_accumulate_lock, check_put_get_lock, check_put_get_lock_large, check_fetch_and_op, check_compare_and_swap,
    check_lock_all, check_pscw, check_accumulate_dynamic, check_shared_window;

#endif
