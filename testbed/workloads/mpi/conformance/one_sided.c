// Checks of one-sided communication with the three kinds of synchronization: fences, locks, and post-start-complete-wait.
// Where the MPI cannot create a window over the transport, each of them is skipped. Memory that the ranks of a host share needs none.
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

// Creates a window over `bytes`, or records that this is impossible.
static bool open_window(void *memory, size_t bytes, int unit, MPI_Win *window) {
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    step("MPI_Win_create");
    int error = MPI_Win_create(memory, (MPI_Aint)bytes, unit, MPI_INFO_NULL, comm, window), class = MPI_SUCCESS;
    if (error != MPI_SUCCESS) {
        MPI_Error_class(error, &class);
        skip("MPI_Win_create fails with error class %d", class);
        return false;
    }
    MPI_Win_set_errhandler(*window, MPI_ERRORS_ARE_FATAL);
    return true;
}

static void put_fence(size_t length) {
    size_t total = length * (size_t)ranks;
    unsigned char *memory = new_bytes(total), *outs = new_bytes(total);
    MPI_Win window;
    if (open_window(memory, total, 1, &window)) {
        MPI_Win_fence(0, window);
        for (int target = 0; target < ranks; target++) {
            unsigned char *out = outs + (size_t)target * length;
            fill(out, length, seed_of(rank, target));
            step("MPI_Put of %zu bytes to rank %d", length, target);
            MPI_Put(out, (int)length, MPI_BYTE, target, (MPI_Aint)length * rank, (int)length, MPI_BYTE, window);
        }
        step("MPI_Win_fence");
        MPI_Win_fence(0, window);
        for (int source = 0; source < ranks; source++) {
            expect_filled(memory + (size_t)source * length, length, seed_of(source, rank), "MPI_Put");
        }
        MPI_Win_free(&window);
    }
    free_bytes(memory, total);
    free_bytes(outs, total);
}

void check_put_fence(void) {
    put_fence(8);
    put_fence(5000);
}

void check_put_large(void) { put_fence(1 << 20); }

static void get_fence(size_t length) {
    size_t total = length * (size_t)ranks;
    unsigned char *memory = new_bytes(length), *ins = new_bytes(total);
    fill(memory, length, seed_of(rank, 1));
    MPI_Win window;
    if (open_window(memory, length, 1, &window)) {
        MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
        for (int target = 0; target < ranks; target++) {
            step("MPI_Get of %zu bytes from rank %d", length, target);
            MPI_Get(ins + (size_t)target * length, (int)length, MPI_BYTE, target, 0, (int)length, MPI_BYTE, window);
        }
        step("MPI_Win_fence after MPI_Get of %zu bytes", length);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
        for (int target = 0; target < ranks; target++) {
            expect_filled(ins + (size_t)target * length, length, seed_of(target, 1), "MPI_Get");
        }
        MPI_Win_free(&window);
    }
    free_bytes(memory, length);
    free_bytes(ins, total);
}

void check_get_fence(void) {
    get_fence(4);
    get_fence(3000);
}

void check_get_large(void) { get_fence(300000); }

static void accumulate(bool lock) {
    enum { COUNT = 2000, ROUNDS = 3 };
    static int sums[COUNT], mine[COUNT];
    memset(sums, 0, sizeof sums);
    for (int i = 0; i < COUNT; i++) {
        mine[i] = rank * 10 + i;
    }
    MPI_Win window;
    if (!open_window(sums, sizeof sums, sizeof(int), &window)) {
        return;
    }
    if (!lock) {
        MPI_Win_fence(0, window);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int target = 0; target < ranks; target++) {
            step("MPI_Accumulate at rank %d", target);
            if (lock) {
                MPI_Win_lock(round % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, window);
            }
            MPI_Accumulate(mine, COUNT, MPI_INT, target, 0, COUNT, MPI_INT, MPI_SUM, window);
            if (lock) {
                step("MPI_Win_unlock of rank %d", target);
                MPI_Win_unlock(target, window);
            }
        }
    }
    step("end of all accumulations");
    if (lock) {
        MPI_Barrier(comm);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    } else {
        MPI_Win_fence(0, window);
    }
    for (int i = 0; i < COUNT; i++) {
        int expected = ROUNDS * (ranks * (ranks - 1) / 2 * 10 + ranks * i);
        if (sums[i] != expected) {
            fail("MPI_Accumulate: element %d is %d, expected %d", i, sums[i], expected);
            break;
        }
    }
    if (lock) {
        MPI_Win_unlock(rank, window);
    }
    MPI_Win_free(&window);
}

void check_accumulate_fence(void) { accumulate(false); }

void check_accumulate_lock(void) { accumulate(true); }

static void put_get_lock(size_t length) {
    size_t total = length * (size_t)ranks;
    unsigned char *memory = new_bytes(total), *out = new_bytes(length), *in = new_bytes(length);
    MPI_Win window;
    if (open_window(memory, total, 1, &window)) {
        for (int target = 0; target < ranks; target++) {
            fill(out, length, seed_of(rank, target));
            step("MPI_Put and MPI_Get of %zu bytes at rank %d", length, target);
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
            MPI_Put(out, (int)length, MPI_BYTE, target, (MPI_Aint)length * rank, (int)length, MPI_BYTE, window);
            MPI_Win_unlock(target, window);
            memset(in, 0, length);
            MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window);
            MPI_Get(in, (int)length, MPI_BYTE, target, (MPI_Aint)length * rank, (int)length, MPI_BYTE, window);
            MPI_Win_unlock(target, window);
            expect_filled(in, length, seed_of(rank, target), "MPI_Get of what MPI_Put wrote");
        }
        step("barrier after all locks");
        MPI_Barrier(comm);
        MPI_Win_free(&window);
    }
    free_bytes(memory, total);
    free_bytes(out, length);
    free_bytes(in, length);
}

void check_put_get_lock(void) {
    put_get_lock(8);
    put_get_lock(2000);
}

void check_put_get_lock_large(void) { put_get_lock(200000); }

// Every rank draws tickets from a counter at rank 0; each number must be drawn exactly once.
void check_fetch_and_op(void) {
    enum { TICKETS = 25 };
    long counter = 0, drawn[TICKETS];
    const long one = 1;
    MPI_Win window;
    if (!open_window(&counter, sizeof counter, sizeof counter, &window)) {
        return;
    }
    for (int i = 0; i < TICKETS; i++) {
        step("ticket %d", i);
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Fetch_and_op(&one, &drawn[i], MPI_LONG, 0, 0, MPI_SUM, window);
        MPI_Win_unlock(0, window);
    }
    step("collection of the tickets");
    long *all = calloc((size_t)ranks * TICKETS, sizeof *all);
    bool *seen = calloc((size_t)ranks * TICKETS, sizeof *seen);
    MPI_Allgather(drawn, TICKETS, MPI_LONG, all, TICKETS, MPI_LONG, comm);
    for (int i = 0; i < ranks * TICKETS; i++) {
        if (all[i] < 0 || all[i] >= ranks * TICKETS || seen[all[i]]) {
            fail("MPI_Fetch_and_op: ticket %ld was drawn twice or does not exist", all[i]);
            break;
        }
        seen[all[i]] = true;
    }
    free(all);
    free(seen);
    MPI_Win_free(&window);
}

// The ranks pass a token through a word at rank 0: each replaces its number by the next one, as soon as it is its turn.
void check_compare_and_swap(void) {
    enum { TURNS = 3 };
    int word = 0;
    MPI_Win window;
    if (!open_window(&word, sizeof word, sizeof word, &window)) {
        return;
    }
    for (int turn = 0; turn < TURNS; turn++) {
        int mine = turn * ranks + rank, next = mine + 1, found = -1;
        step("turn %d", turn);
        while (found != mine) {
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
            MPI_Compare_and_swap(&next, &mine, &found, MPI_INT, 0, 0, window);
            MPI_Win_unlock(0, window);
            if (found > mine) {
                fail("MPI_Compare_and_swap: the word is %d before it was the turn of %d", found, mine);
                break;
            }
        }
    }
    step("barrier after all turns");
    MPI_Barrier(comm);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    EXPECT(rank != 0 || word == TURNS * ranks, "MPI_Compare_and_swap: the word is %d at the end", word);
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
}

void check_lock_all(void) {
    enum { LENGTH = 4000, ROUNDS = 5 };
    size_t total = (size_t)ranks * LENGTH;
    unsigned char *memory = new_bytes(total), *outs = new_bytes(total), *ins = new_bytes(total);
    MPI_Win window;
    if (open_window(memory, total, 1, &window)) {
        MPI_Win_lock_all(0, window);
        for (int round = 0; round < ROUNDS; round++) {
            fill(outs, total, seed_of(rank, round));
            for (int target = 0; target < ranks; target++) {
                MPI_Put(outs + target * LENGTH, LENGTH, MPI_BYTE, target, (MPI_Aint)LENGTH * rank, LENGTH, MPI_BYTE, window);
            }
            step("MPI_Win_flush_all in round %d", round);
            MPI_Win_flush_all(window);
            for (int target = 0; target < ranks; target++) {
                MPI_Get(ins + target * LENGTH, LENGTH, MPI_BYTE, target, (MPI_Aint)LENGTH * rank, LENGTH, MPI_BYTE, window);
                step("MPI_Win_flush of rank %d in round %d", target, round);
                MPI_Win_flush(target, window);
            }
            expect_filled(ins, total, seed_of(rank, round), "MPI_Get after a flush");
        }
        step("MPI_Win_unlock_all");
        MPI_Win_unlock_all(window);
        MPI_Barrier(comm);
        MPI_Win_free(&window);
    }
    free_bytes(memory, total);
    free_bytes(outs, total);
    free_bytes(ins, total);
}

// Each rank exposes its memory to the left neighbour and accesses that of the right one.
void check_pscw(void) {
    enum { LENGTH = 6000 };
    unsigned char *memory = new_bytes(LENGTH), *out = new_bytes(LENGTH);
    MPI_Win window;
    if (open_window(memory, LENGTH, 1, &window)) {
        const int from = left(), to = right();
        MPI_Group all, origins, targets;
        MPI_Comm_group(comm, &all);
        MPI_Group_incl(all, 1, &from, &origins);
        MPI_Group_incl(all, 1, &to, &targets);
        for (int round = 0; round < 5; round++) {
            fill(out, LENGTH, seed_of(rank, round));
            step("MPI_Win_post and MPI_Win_start in round %d", round);
            MPI_Win_post(origins, 0, window);
            MPI_Win_start(targets, 0, window);
            MPI_Put(out, LENGTH, MPI_BYTE, to, 0, LENGTH, MPI_BYTE, window);
            step("MPI_Win_complete in round %d", round);
            MPI_Win_complete(window);
            step("MPI_Win_wait in round %d", round);
            MPI_Win_wait(window);
            expect_filled(memory, LENGTH, seed_of(from, round), "MPI_Put between post and wait");
        }
        MPI_Group_free(&all);
        MPI_Group_free(&origins);
        MPI_Group_free(&targets);
        MPI_Win_free(&window);
    }
    free_bytes(memory, LENGTH);
    free_bytes(out, LENGTH);
}

// Every rank adds to memory that each other one attached to a window without any.
void check_accumulate_dynamic(void) {
    enum { COUNT = 32768 };
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Win window;
    step("MPI_Win_create_dynamic");
    if (MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window) != MPI_SUCCESS) {
        skip("MPI_Win_create_dynamic fails");
        return;
    }
    MPI_Win_set_errhandler(window, MPI_ERRORS_ARE_FATAL);
    int *memory = calloc(COUNT, sizeof *memory), *outs = calloc(COUNT, sizeof *outs);
    MPI_Aint own, *places = calloc((size_t)ranks, sizeof *places);
    MPI_Win_attach(window, memory, COUNT * sizeof *memory);
    MPI_Get_address(memory, &own);
    MPI_Allgather(&own, 1, MPI_AINT, places, 1, MPI_AINT, comm);
    int total = 0;
    for (int count = 16; count <= COUNT; count *= 8) {
        for (int i = 0; i < count; i++) {
            outs[i] = rank + i;
        }
        step("MPI_Accumulate of %d integers", count);
        MPI_Win_lock_all(0, window);
        for (int target = 0; target < ranks; target++) {
            MPI_Accumulate(outs, count, MPI_INT, target, places[target], count, MPI_INT, MPI_SUM, window);
        }
        MPI_Win_unlock_all(window);
        step("barrier after MPI_Accumulate of %d integers", count);
        MPI_Barrier(comm);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
        total += ranks;
        EXPECT(memory[0] == total / ranks * (ranks * (ranks - 1) / 2), "MPI_Accumulate of %d: %d", count, memory[0]);
        EXPECT(memory[count - 1] >= ranks * (count - 1), "MPI_Accumulate of %d: %d at the end", count, memory[count - 1]);
        MPI_Win_unlock(rank, window);
        MPI_Barrier(comm);
    }
    MPI_Win_detach(window, memory);
    MPI_Win_free(&window);
    free(memory);
    free(outs);
    free(places);
}

// The ranks of each host share memory: each writes a part of it, and reads that of its neighbour without a call of MPI.
void check_shared_window(void) {
    enum { LENGTH = 6000 };
    MPI_Comm host;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_set_errhandler(host, MPI_ERRORS_RETURN);
    int own, count, unit, class = MPI_SUCCESS;
    MPI_Comm_rank(host, &own);
    MPI_Comm_size(host, &count);
    unsigned char *memory = NULL, *other = NULL;
    MPI_Win window;
    step("MPI_Win_allocate_shared");
    int error = MPI_Win_allocate_shared(LENGTH, 1, MPI_INFO_NULL, host, &memory, &window);
    if (error == MPI_SUCCESS) {
        MPI_Aint bytes;
        MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
        fill(memory, LENGTH, seed_of(own, count));
        MPI_Win_sync(window);
        step("barrier after each rank wrote");
        MPI_Barrier(host);
        MPI_Win_sync(window);
        MPI_Win_shared_query(window, (own + 1) % count, &bytes, &unit, &other);
        EXPECT(bytes == LENGTH, "MPI_Win_shared_query: %ld bytes", (long)bytes);
        expect_filled(other, LENGTH, seed_of((own + 1) % count, count), "the neighbour's memory");
        MPI_Win_unlock_all(window);
        MPI_Win_free(&window);
    } else {
        MPI_Error_class(error, &class);
        fail("MPI_Win_allocate_shared fails with error class %d", class);
    }
    MPI_Comm_free(&host);
}
