// Checks of the calls that complete one or several of many outstanding requests.
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

// 500 requests are outstanding: half of them receives, half of them sends.
enum { MESSAGES = 250, REQUESTS = 2 * MESSAGES, LONGEST = 20000 };

typedef struct batch {
    unsigned char *outs[MESSAGES];
    unsigned char *ins[MESSAGES];
    MPI_Request requests[REQUESTS];
    bool done[REQUESTS];
    int left_over;
} batch;

static size_t length_of(int number) { return (size_t)(number * number) % LONGEST; }

// The sends are started in another order than the receives, so that they complete out of order.
static batch *start(void) {
    batch *batch = calloc(1, sizeof *batch);
    batch->left_over = REQUESTS;
    for (int i = 0; i < MESSAGES; i++) {
        batch->ins[i] = new_bytes(length_of(i));
        MPI_Irecv(batch->ins[i], (int)length_of(i), MPI_BYTE, left(), i, comm, &batch->requests[i]);
    }
    for (int i = 0; i < MESSAGES; i++) {
        int number = i * 77 % MESSAGES;
        size_t length = length_of(number);
        batch->outs[number] = new_bytes(length);
        fill(batch->outs[number], length, seed_of(rank, number));
        MPI_Isend(batch->outs[number], (int)length, MPI_BYTE, right(), number, comm, &batch->requests[MESSAGES + number]);
    }
    return batch;
}

static void complete(batch *batch, int index, const MPI_Status *status) {
    if (index < 0 || index >= REQUESTS || batch->done[index]) {
        fail("request %d was reported twice or does not exist", index);
        return;
    }
    batch->done[index] = true;
    batch->left_over--;
    step("%d requests are outstanding", batch->left_over);
    EXPECT(batch->requests[index] == MPI_REQUEST_NULL, "the handle of complete request %d is not null", index);
    if (index < MESSAGES) {
        expect_status(status, left(), index, length_of(index), "one of 500 requests");
        expect_filled(batch->ins[index], length_of(index), seed_of(left(), index), "one of 500 requests");
    }
}

static void finish(batch *batch) {
    EXPECT(batch->left_over == 0, "%d requests were never reported", batch->left_over);
    for (int i = 0; i < MESSAGES; i++) {
        free_bytes(batch->ins[i], length_of(i));
        free_bytes(batch->outs[i], length_of(i));
    }
    free(batch);
}

void check_waitany(void) {
    batch *batch = start();
    for (int i = 0; i < REQUESTS; i++) {
        int index = MPI_UNDEFINED;
        MPI_Status status;
        MPI_Waitany(REQUESTS, batch->requests, &index, &status);
        complete(batch, index, &status);
    }
    int index = 0;
    MPI_Waitany(REQUESTS, batch->requests, &index, MPI_STATUS_IGNORE);
    EXPECT(index == MPI_UNDEFINED, "MPI_Waitany gave request %d, but none was active", index);
    finish(batch);
}

static void some(int (*function)(int, MPI_Request[], int *, int[], MPI_Status[])) {
    batch *batch = start();
    static int indices[REQUESTS];
    static MPI_Status statuses[REQUESTS];
    int count = 0;
    while (batch->left_over > 0 && count != MPI_UNDEFINED) {
        function(REQUESTS, batch->requests, &count, indices, statuses);
        for (int i = 0; i < count; i++) {
            complete(batch, indices[i], &statuses[i]);
        }
    }
    function(REQUESTS, batch->requests, &count, indices, statuses);
    EXPECT(count == MPI_UNDEFINED, "%d requests were reported, but none was active", count);
    finish(batch);
}

void check_waitsome(void) { some(MPI_Waitsome); }

void check_testsome(void) { some(MPI_Testsome); }

static void complete_all(batch *batch, const MPI_Status *statuses) {
    for (int i = 0; i < REQUESTS; i++) {
        complete(batch, i, &statuses[i]);
    }
    finish(batch);
}

void check_waitall(void) {
    static MPI_Status statuses[REQUESTS];
    batch *batch = start();
    step("MPI_Waitall");
    MPI_Waitall(REQUESTS, batch->requests, statuses);
    complete_all(batch, statuses);
}

void check_testany(void) {
    batch *batch = start();
    for (int done = 0; done < REQUESTS;) {
        int index = MPI_UNDEFINED, flag = 0;
        MPI_Status status;
        MPI_Testany(REQUESTS, batch->requests, &index, &flag, &status);
        if (flag && index == MPI_UNDEFINED) {
            fail("MPI_Testany says that no request is active, but %d are", batch->left_over);
            break;
        }
        if (flag) {
            complete(batch, index, &status);
            done++;
        }
    }
    finish(batch);
}

void check_testall(void) {
    static MPI_Status statuses[REQUESTS];
    batch *batch = start();
    step("MPI_Testall");
    int flag = 0;
    while (!flag) {
        MPI_Testall(REQUESTS, batch->requests, &flag, statuses);
    }
    complete_all(batch, statuses);
}
