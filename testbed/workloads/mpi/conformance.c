// A conformance program for MPI implementations and the transports below them: many named checks, each with verified
// results, and one line per check. It exists to find out what a transport breaks; every check passes on any correct MPI.
//
//     mpirun -np 4 conformance [--list] [--only NAME,...] [--except NAME,...] [--large] [--single] [--timeout SECONDS]
//
// The exit status is 0 only if no check failed. The checks themselves are in the folder conformance/.
#define _POSIX_C_SOURCE 200809L

#include "conformance/conformance.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "usage.h"

static const char USAGE[] =
    "mpirun -np N conformance [--list] [--only NAME,...] [--except NAME,...] [--large] [--single] [--timeout SECONDS]";

enum { REASON_BYTES = 300, GUARD_BYTES = 32, GUARD = 0xEE };

typedef enum need { NOTHING, THREADS, LARGE } need;

typedef struct check {
    const char *name;
    check_function *function;
    int least_ranks;
    need need;
} check;

static const check CHECKS[] = {
    {"ring_sizes", check_ring_sizes, 1, NOTHING},
    {"any_source", check_any_source, 1, NOTHING},
    {"status", check_status, 1, NOTHING},
    {"tag_selection", check_tag_selection, 1, NOTHING},
    {"buffer_reuse", check_buffer_reuse, 1, NOTHING},
    {"all_pairs", check_all_pairs, 1, NOTHING},
    {"probe_eager", check_probe_eager, 1, NOTHING},
    {"probe_large", check_probe_large, 1, NOTHING},
    {"iprobe_eager", check_iprobe_eager, 1, NOTHING},
    {"iprobe_large", check_iprobe_large, 1, NOTHING},
    {"mprobe_eager", check_mprobe_eager, 1, NOTHING},
    {"mprobe_large", check_mprobe_large, 1, NOTHING},
    {"improbe_eager", check_improbe_eager, 1, NOTHING},
    {"improbe_large", check_improbe_large, 1, NOTHING},
    {"probe_no_message", check_probe_no_message, 1, NOTHING},
    {"ssend_eager", check_ssend_eager, 2, NOTHING},
    {"ssend_large", check_ssend_large, 2, NOTHING},
    {"bsend", check_bsend, 1, NOTHING},
    {"truncate_unexpected_eager", check_truncate_unexpected_eager, 2, NOTHING},
    {"truncate_unexpected_large", check_truncate_unexpected_large, 2, NOTHING},
    {"truncate_posted_eager", check_truncate_posted_eager, 2, NOTHING},
    {"truncate_posted_large", check_truncate_posted_large, 2, NOTHING},
    {"truncate_mrecv", check_truncate_mrecv, 2, NOTHING},
    {"truncate_waitall", check_truncate_waitall, 2, NOTHING},
    {"cancel", check_cancel, 1, NOTHING},
    {"cancel_middle", check_cancel_middle, 1, NOTHING},
    {"cancel_matched", check_cancel_matched, 1, NOTHING},
    {"flood", check_flood, 1, NOTHING},
    {"order", check_order, 1, NOTHING},
    {"order_posted", check_order_posted, 1, NOTHING},
    {"self_sizes", check_self_sizes, 1, NOTHING},
    {"self_sendrecv", check_self_sendrecv, 1, NOTHING},
    {"self_probe", check_self_probe, 1, NOTHING},
    {"persistent", check_persistent, 1, NOTHING},
    {"vector_eager", check_vector_eager, 1, NOTHING},
    {"vector_large", check_vector_large, 1, NOTHING},
    {"struct_eager", check_struct_eager, 1, NOTHING},
    {"struct_large", check_struct_large, 1, NOTHING},
    {"hindexed_eager", check_hindexed_eager, 1, NOTHING},
    {"hindexed_large", check_hindexed_large, 1, NOTHING},
    {"waitany", check_waitany, 1, NOTHING},
    {"waitsome", check_waitsome, 1, NOTHING},
    {"waitall", check_waitall, 1, NOTHING},
    {"testany", check_testany, 1, NOTHING},
    {"testsome", check_testsome, 1, NOTHING},
    {"testall", check_testall, 1, NOTHING},
    {"busy_receiver", check_busy_receiver, 2, NOTHING},
    {"busy_sender", check_busy_sender, 2, NOTHING},
    {"barrier", check_barrier, 1, NOTHING},
    {"bcast", check_bcast, 1, NOTHING},
    {"reduce", check_reduce, 1, NOTHING},
    {"allreduce", check_allreduce, 1, NOTHING},
    {"reduce_not_commutative", check_reduce_not_commutative, 1, NOTHING},
    {"reduce_scatter", check_reduce_scatter, 1, NOTHING},
    {"scan", check_scan, 1, NOTHING},
    {"gather", check_gather, 1, NOTHING},
    {"scatter", check_scatter, 1, NOTHING},
    {"allgather", check_allgather, 1, NOTHING},
    {"alltoall", check_alltoall, 1, NOTHING},
    {"alltoallw", check_alltoallw, 1, NOTHING},
    {"ibarrier", check_ibarrier, 1, NOTHING},
    {"ibcast", check_ibcast, 1, NOTHING},
    {"iallreduce", check_iallreduce, 1, NOTHING},
    {"ialltoall", check_ialltoall, 1, NOTHING},
    {"igather_iscatter", check_igather_iscatter, 1, NOTHING},
    {"nonblocking_at_once", check_nonblocking_at_once, 1, NOTHING},
    {"comm_split", check_comm_split, 1, NOTHING},
    {"comm_dup", check_comm_dup, 1, NOTHING},
    {"comm_group", check_comm_group, 1, NOTHING},
    {"intercommunicator", check_intercommunicator, 2, NOTHING},
    {"cartesian", check_cartesian, 1, NOTHING},
    {"put_fence", check_put_fence, 1, NOTHING},
    {"get_fence", check_get_fence, 1, NOTHING},
    {"put_large", check_put_large, 1, NOTHING},
    {"get_large", check_get_large, 1, NOTHING},
    {"accumulate_fence", check_accumulate_fence, 1, NOTHING},
    {"accumulate_lock", check_accumulate_lock, 1, NOTHING},
    {"put_get_lock", check_put_get_lock, 1, NOTHING},
    {"put_get_lock_large", check_put_get_lock_large, 1, NOTHING},
    {"fetch_and_op", check_fetch_and_op, 1, NOTHING},
    {"compare_and_swap", check_compare_and_swap, 1, NOTHING},
    {"lock_all", check_lock_all, 1, NOTHING},
    {"pscw", check_pscw, 2, NOTHING},
    {"accumulate_dynamic", check_accumulate_dynamic, 1, NOTHING},
    {"shared_window", check_shared_window, 1, NOTHING},
    {"threads_tags", check_threads_tags, 1, THREADS},
    {"threads_communicators", check_threads_communicators, 1, THREADS},
    {"threads_large", check_threads_large, 1, THREADS},
    {"threads_probe", check_threads_probe, 1, THREADS},
    {"threads_collectives", check_threads_collectives, 1, THREADS},
    {"large_message", check_large_message, 1, LARGE},
};

MPI_Comm comm = MPI_COMM_NULL;
int rank;
int ranks;

static struct options {
    const char *only;
    const char *except;
    bool list;
    bool large;
    bool single;
    unsigned timeout_s;
} options = {.timeout_s = 120};

// What became of the running check on this rank.
static struct outcome {
    pthread_mutex_t lock;
    bool failed;
    bool skipped;
    char reason[REASON_BYTES];
} outcome = {.lock = PTHREAD_MUTEX_INITIALIZER};

// What a hang is reported with: only plain memory, because a signal handler reads it.
static char current_check[64] = "MPI_Init_thread";
static char current_step[200];
static char rank_text[16] = "unknown";

static void record(bool *flag, const char *format, va_list arguments) {
    pthread_mutex_lock(&outcome.lock);
    if (!outcome.failed && !outcome.skipped) {
        vsnprintf(outcome.reason, sizeof outcome.reason, format, arguments);
    }
    *flag = true;
    pthread_mutex_unlock(&outcome.lock);
}

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record(&outcome.failed, format, arguments);
    va_end(arguments);
}

void skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record(&outcome.skipped, format, arguments);
    va_end(arguments);
}

void step(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(current_step, sizeof current_step, format, arguments);
    va_end(arguments);
}

unsigned char *new_bytes(size_t length) {
    unsigned char *bytes = calloc(1, length + GUARD_BYTES);
    if (bytes == NULL) {
        fprintf(stderr, "conformance: no memory for %zu bytes\n", length);
        MPI_Abort(MPI_COMM_WORLD, 2);
        abort();
    }
    memset(bytes + length, GUARD, GUARD_BYTES);
    return bytes;
}

void free_bytes(unsigned char *bytes, size_t length) {
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (bytes[length + i] != GUARD) {
            fail("byte %zu behind a buffer of %zu bytes was overwritten", i, length);
            break;
        }
    }
    free(bytes);
}

static unsigned char byte_at(size_t i, unsigned seed) {
    return (unsigned char)(seed + i * 167 + (i >> 8) * 59 + (i >> 16) * 31);
}

void fill(void *buffer, size_t length, unsigned seed) {
    unsigned char *bytes = buffer;
    for (size_t i = 0; i < length; i++) {
        bytes[i] = byte_at(i, seed);
    }
}

void expect_filled(const void *buffer, size_t length, unsigned seed, const char *what) {
    const unsigned char *bytes = buffer;
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != byte_at(i, seed)) {
            fail("%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, i, length, bytes[i], byte_at(i, seed));
            return;
        }
    }
}

unsigned seed_of(int source, int number) {
    return (unsigned)source * 101u + (unsigned)number * 37u + 11u;
}

void expect_status(const MPI_Status *status, int source, int tag, size_t bytes, const char *what) {
    int count = 0;
    MPI_Get_count(status, MPI_BYTE, &count);
    EXPECT(status->MPI_SOURCE == source, "%s: source %d in the status, expected %d", what, status->MPI_SOURCE, source);
    EXPECT(status->MPI_TAG == tag, "%s: tag %d in the status, expected %d", what, status->MPI_TAG, tag);
    EXPECT((size_t)count == bytes, "%s: count %d in the status, expected %zu", what, count, bytes);
}

int right(void) { return (rank + 1) % ranks; }

int left(void) { return (rank + ranks - 1) % ranks; }

void signal_peer(int peer, int tag) { MPI_Send(NULL, 0, MPI_BYTE, peer, tag, comm); }

void await_peer(int peer, int tag) { MPI_Recv(NULL, 0, MPI_BYTE, peer, tag, comm, MPI_STATUS_IGNORE); }

// With real statuses, because compilers warn of MPI_STATUSES_IGNORE where it is a constant that is no address.
void wait_all(int count, MPI_Request *requests) {
    MPI_Status *statuses = calloc((size_t)count + 1, sizeof *statuses);
    MPI_Waitall(count, requests, statuses);
    free(statuses);
}

void compute_for(double seconds) {
    volatile double sum = 0.0;
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end) {
        for (int i = 1; i < 10000; i++) {
            sum = sum + 1.0 / i;
        }
    }
}

static void on_alarm(int signal_number) {
    (void)signal_number;
    // One call for the whole line, so that the lines of several ranks do not mix.
    static char line[sizeof current_check + sizeof current_step + 64];
    line[0] = 0;
    strcat(line, "FAIL ");
    strcat(line, current_check);
    strcat(line, ": hangs, rank ");
    strcat(line, rank_text);
    if (current_step[0] != 0) {
        strcat(line, ", at: ");
        strcat(line, current_step);
    }
    strcat(line, "\n");
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written;
    // The first rank that exits ends the others; this second lets them say where they are.
    sleep(1);
    _exit(3);
}

// Whether `name` is an element of the comma-separated list.
static bool is_listed(const char *name, const char *list) {
    size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == 0)) {
            return true;
        }
    }
    return false;
}

static void check_names(const char *list) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", list);
    for (char *name = strtok(copy, ","); name != NULL; name = strtok(NULL, ",")) {
        bool known = false;
        for (int i = 0; i < COUNT_OF(CHECKS); i++) {
            known = known || strcmp(CHECKS[i].name, name) == 0;
        }
        if (!known) {
            fprintf(stderr, "conformance: there is no check %s; see --list\n", name);
            exit(2);
        }
    }
}

static void parse(int count, char **arguments) {
    answer_help(count, arguments, USAGE);
    for (int i = 1; i < count; i++) {
        const char *name = arguments[i];
        bool has_value = i + 1 < count;
        if (strcmp(name, "--list") == 0) {
            options.list = true;
        } else if (strcmp(name, "--large") == 0) {
            options.large = true;
        } else if (strcmp(name, "--single") == 0) {
            options.single = true;
        } else if (strcmp(name, "--only") == 0 && has_value) {
            options.only = arguments[++i];
            check_names(options.only);
        } else if (strcmp(name, "--except") == 0 && has_value) {
            options.except = arguments[++i];
            check_names(options.except);
        } else if (strcmp(name, "--timeout") == 0 && has_value && atoi(arguments[i + 1]) > 0) {
            options.timeout_s = (unsigned)atoi(arguments[++i]);
        } else {
            fprintf(stderr, "conformance: no option or no value: %s\nusage: %s\n", name, USAGE);
            exit(2);
        }
    }
}

static bool is_selected(const check *check) {
    if (options.only != NULL && !is_listed(check->name, options.only)) {
        return false;
    }
    if (options.except != NULL && is_listed(check->name, options.except)) {
        return false;
    }
    return check->need != LARGE || options.large;
}

typedef struct totals {
    int passed;
    int failed;
    int skipped;
} totals;

// Brings the outcome of all ranks together and prints the line of the check on rank 0.
static void report(const check *check, totals *totals) {
    struct { int value, rank; } mine = {outcome.failed ? 2 : outcome.skipped ? 1 : 0, rank}, worst;
    MPI_Allreduce(&mine, &worst, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
    char reason[REASON_BYTES];
    memcpy(reason, outcome.reason, sizeof reason);
    MPI_Bcast(reason, sizeof reason, MPI_CHAR, worst.rank, MPI_COMM_WORLD);
    totals->failed += worst.value == 2;
    totals->skipped += worst.value == 1;
    totals->passed += worst.value == 0;
    if (rank != 0) {
        return;
    }
    if (worst.value == 2) {
        printf("FAIL %s: %s (rank %d)\n", check->name, reason, worst.rank);
    } else if (worst.value == 1) {
        printf("skip %s: %s\n", check->name, reason);
    } else {
        printf("ok %s\n", check->name);
    }
    fflush(stdout);
}

static void run(const check *check, int thread_level, totals *totals) {
    snprintf(current_check, sizeof current_check, "%s", check->name);
    current_step[0] = 0;
    outcome.failed = outcome.skipped = false;
    outcome.reason[0] = 0;
    if (ranks < check->least_ranks) {
        skip("needs %d ranks", check->least_ranks);
    } else if (check->need == THREADS && thread_level < MPI_THREAD_MULTIPLE) {
        skip("MPI_THREAD_MULTIPLE was not asked for or is not provided");
    } else {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        check->function();
        step("the end of the check");
        MPI_Comm_free(&comm);
    }
    report(check, totals);
}

int main(int count, char **arguments) {
    parse(count, arguments);
    if (options.list) {
        for (int i = 0; i < COUNT_OF(CHECKS); i++) {
            puts(CHECKS[i].name);
        }
        return 0;
    }
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    alarm(options.timeout_s);

    int thread_level = 0;
    MPI_Init_thread(&count, &arguments, options.single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &thread_level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    totals totals = {0, 0, 0};
    for (int i = 0; i < COUNT_OF(CHECKS); i++) {
        if (is_selected(&CHECKS[i])) {
            run(&CHECKS[i], options.single ? MPI_THREAD_SINGLE : thread_level, &totals);
        }
    }
    snprintf(current_check, sizeof current_check, "MPI_Finalize");
    current_step[0] = 0;
    if (rank == 0) {
        printf("%d passed, %d failed, %d skipped; %d ranks\n", totals.passed, totals.failed, totals.skipped, ranks);
        fflush(stdout);
    }
    MPI_Finalize();
    return totals.failed == 0 ? 0 : 1;
}
