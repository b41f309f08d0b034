// One-sided communication between two ranks: the time of one put, get or accumulate with its flush, and the throughput of 64 with one
// flush. The bytes are verified; the exit status is 1 if they are wrong. Further ranks wait.
//
//     mpirun -np 2 onesided [REPEATS]
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usage.h"

static const char USAGE[] = "mpirun -np 2 onesided [REPEATS]";

enum { LARGEST = 1 << 20, AT_ONCE = 64, ROOM = LARGEST * 2 };

static const char *const OPERATIONS[] = {"put", "get", "accumulate"};
enum { PUT, GET, ACCUMULATE, OPERATION_COUNT };

static int rank;
static bool is_wrong;
static unsigned char *memory, *bytes;
static MPI_Win window;

static void access_once(int operation, int length) {
    switch (operation) {
    case PUT: MPI_Put(bytes, length, MPI_BYTE, 1, 0, length, MPI_BYTE, window); break;
    case GET: MPI_Get(bytes, length, MPI_BYTE, 1, 0, length, MPI_BYTE, window); break;
    default: MPI_Accumulate(bytes, length, MPI_BYTE, 1, 0, length, MPI_BYTE, MPI_BXOR, window); break;
    }
}

// The seconds of so many rounds of accesses with a flush each.
static double time_of(int operation, int length, int accesses, int rounds) {
    double begin = MPI_Wtime();
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < accesses; i++) {
            access_once(operation, length);
        }
        MPI_Win_flush(1, window);
    }
    return MPI_Wtime() - begin;
}

static void expect(const unsigned char *found, int length, unsigned char value, const char *operation) {
    for (int i = 0; i < length && !is_wrong; i++) {
        if (found[i] != value) {
            fprintf(stderr, "onesided: %s of %d bytes: byte %d is %d, not %d\n", operation, length, i, found[i], value);
            is_wrong = true;
        }
    }
}

// Measures an operation with messages of this length, and verifies the bytes.
static void measure(int operation, int length, int repeats) {
    memset(memory, rank == 1 && operation == GET ? 7 : 0, LARGEST);
    memset(bytes, operation == GET ? 0 : 7, LARGEST);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        // An even number of accumulates leaves nothing, so there is one more.
        access_once(operation, length);
        MPI_Win_flush(1, window);
        int rounds = repeats * 4096 / (4096 + length / 16) + 1;
        double one = time_of(operation, length, 1, rounds * 2) / (rounds * 2);
        rounds = rounds / AT_ONCE + 1;
        double many = time_of(operation, length, AT_ONCE, rounds) / rounds / AT_ONCE;
        printf("%-10s %8d bytes %10.2f us %10.2f MB/s\n", OPERATIONS[operation], length, one * 1e6, length / many / 1e6);
        fflush(stdout);
        if (operation == GET) {
            expect(bytes, length, 7, OPERATIONS[operation]);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && operation != GET) {
        MPI_Win_sync(window);
        expect(memory, length, 7, OPERATIONS[operation]);
        expect(memory + length, 1, 0, OPERATIONS[operation]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int count, char **arguments) {
    answer_help(count, arguments, USAGE);
    int repeats = count > 1 ? (int)number(arguments[1], 1, 1000000, USAGE) : 2000, ranks;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) {
        fprintf(stderr, "onesided: two ranks are needed\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Alloc_mem(ROOM, MPI_INFO_NULL, &memory);
    MPI_Alloc_mem(ROOM, MPI_INFO_NULL, &bytes);
    memset(memory, 0, ROOM);
    MPI_Win_create(memory, ROOM, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    for (int operation = 0; operation < OPERATION_COUNT; operation++) {
        for (int length = 8; length <= LARGEST; length *= 8) {
            measure(operation, length, repeats);
        }
        measure(operation, LARGEST, repeats);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Free_mem(memory);
    MPI_Free_mem(bytes);
    int wrong = is_wrong, any;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
