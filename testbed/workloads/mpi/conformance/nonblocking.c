// Checks of the nonblocking collective operations, one at a time and several together.
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

static const size_t LENGTHS[] = {0, 4, 1000, 20000, 400000};

// Rank 0 enters the barrier last, after every other rank has found its request incomplete.
void check_ibarrier(void) {
    for (int round = 0; round < 5; round++) {
        step("round %d", round);
        MPI_Request request;
        if (rank == 0) {
            for (int peer = 1; peer < ranks; peer++) {
                await_peer(peer, 1);
            }
            MPI_Ibarrier(comm, &request);
        } else {
            MPI_Ibarrier(comm, &request);
            int complete = 0;
            for (int i = 0; i < 100 && !complete; i++) {
                MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
            }
            EXPECT(!complete, "MPI_Ibarrier was complete before rank 0 had entered it");
            signal_peer(0, 1);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

void check_ibcast(void) {
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        size_t length = LENGTHS[i];
        unsigned char *bytes = new_bytes(length);
        for (int root = 0; root < ranks; root++) {
            step("%zu bytes from rank %d", length, root);
            fill(bytes, length, seed_of(rank, i));
            MPI_Request request;
            MPI_Ibcast(bytes, (int)length, MPI_BYTE, root, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            expect_filled(bytes, length, seed_of(root, i), "MPI_Ibcast");
        }
        free_bytes(bytes, length);
    }
}

void check_iallreduce(void) {
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        int count = (int)(LENGTHS[i] / sizeof(int));
        int *mine = (int *)(void *)new_bytes(LENGTHS[i]), *sums = (int *)(void *)new_bytes(LENGTHS[i]);
        for (int j = 0; j < count; j++) {
            mine[j] = rank * 3 + j;
        }
        step("%d elements", count);
        MPI_Request request;
        MPI_Iallreduce(mine, sums, count, MPI_INT, MPI_SUM, comm, &request);
        int complete = 0;
        while (!complete) {
            MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
        }
        for (int j = 0; j < count; j++) {
            int expected = ranks * (ranks - 1) / 2 * 3 + ranks * j;
            if (sums[j] != expected) {
                fail("MPI_Iallreduce: element %d is %d, expected %d", j, sums[j], expected);
                break;
            }
        }
        free_bytes((unsigned char *)mine, LENGTHS[i]);
        free_bytes((unsigned char *)sums, LENGTHS[i]);
    }
}

void check_ialltoall(void) {
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        size_t length = LENGTHS[i], total = length * (size_t)ranks;
        unsigned char *outs = new_bytes(total), *ins = new_bytes(total);
        for (int peer = 0; peer < ranks; peer++) {
            fill(outs + (size_t)peer * length, length, seed_of(rank, peer));
        }
        step("%zu bytes", length);
        MPI_Request request;
        MPI_Ialltoall(outs, (int)length, MPI_BYTE, ins, (int)length, MPI_BYTE, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int peer = 0; peer < ranks; peer++) {
            expect_filled(ins + (size_t)peer * length, length, seed_of(peer, rank), "MPI_Ialltoall");
        }
        free_bytes(outs, total);
        free_bytes(ins, total);
    }
}

void check_igather_iscatter(void) {
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        size_t length = LENGTHS[i], total = length * (size_t)ranks;
        unsigned char *mine = new_bytes(length), *all = new_bytes(total), *back = new_bytes(length);
        int root = i % ranks;
        fill(mine, length, seed_of(rank, i));
        MPI_Request request;
        step("MPI_Igather of %zu bytes", length);
        MPI_Igather(mine, (int)length, MPI_BYTE, all, (int)length, MPI_BYTE, root, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int peer = 0; peer < ranks && rank == root; peer++) {
            expect_filled(all + (size_t)peer * length, length, seed_of(peer, i), "MPI_Igather");
        }
        step("MPI_Iscatter of %zu bytes", length);
        MPI_Iscatter(all, (int)length, MPI_BYTE, back, (int)length, MPI_BYTE, root, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect_filled(back, length, seed_of(rank, i), "MPI_Iscatter");
        step("MPI_Iallgather of %zu bytes", length);
        MPI_Iallgather(mine, (int)length, MPI_BYTE, all, (int)length, MPI_BYTE, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int peer = 0; peer < ranks; peer++) {
            expect_filled(all + (size_t)peer * length, length, seed_of(peer, i), "MPI_Iallgather");
        }
        free_bytes(mine, length);
        free_bytes(all, total);
        free_bytes(back, length);
    }
}

// Collective operations and messages are outstanding together on one communicator and complete in any order.
void check_nonblocking_at_once(void) {
    enum { BCASTS = 8, LENGTH = 30000 };
    unsigned char *bytes[BCASTS], *out = new_bytes(LENGTH), *in = new_bytes(LENGTH);
    MPI_Request requests[BCASTS + 4];
    int mine = rank + 1, sum = 0, used = 0;
    fill(out, LENGTH, seed_of(rank, 50));
    MPI_Irecv(in, LENGTH, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[used++]);
    for (int i = 0; i < BCASTS; i++) {
        bytes[i] = new_bytes(LENGTH);
        fill(bytes[i], LENGTH, seed_of(rank, i));
        MPI_Ibcast(bytes[i], LENGTH, MPI_BYTE, i % ranks, comm, &requests[used++]);
    }
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[used++]);
    MPI_Ibarrier(comm, &requests[used++]);
    MPI_Isend(out, LENGTH, MPI_BYTE, right(), 3, comm, &requests[used++]);
    for (int i = 0; i < used; i++) {
        int index = 0;
        step("%d of %d operations are complete", i, used);
        MPI_Waitany(used, requests, &index, MPI_STATUS_IGNORE);
    }
    EXPECT(sum == ranks * (ranks + 1) / 2, "MPI_Iallreduce beside others: %d", sum);
    expect_filled(in, LENGTH, seed_of(left(), 50), "message beside collective operations");
    for (int i = 0; i < BCASTS; i++) {
        expect_filled(bytes[i], LENGTH, seed_of(i % ranks, i), "MPI_Ibcast beside others");
        free_bytes(bytes[i], LENGTH);
    }
    free_bytes(out, LENGTH);
    free_bytes(in, LENGTH);
}
