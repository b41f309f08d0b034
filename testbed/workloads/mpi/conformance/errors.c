// Checks of receives that end otherwise than with the whole message: truncated ones and cancelled ones.
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

enum { DATA = 1, MARK = 2, READY = 3, AFTER = 4 };

// Whether errors are returned or end the program. Calls without a communicator, such as MPI_Mrecv, raise their errors on
// MPI_COMM_WORLD or MPI_COMM_SELF.
static void return_errors(bool yes) {
    MPI_Errhandler handler = yes ? MPI_ERRORS_RETURN : MPI_ERRORS_ARE_FATAL;
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
}

static void expect_truncated(int error, const char *what) {
    int class = MPI_SUCCESS;
    MPI_Error_class(error, &class);
    EXPECT(class == MPI_ERR_TRUNCATE, "%s: error class %d, expected MPI_ERR_TRUNCATE (%d)", what, class, MPI_ERR_TRUNCATE);
}

// A message of each kind of size passes from the left to the right neighbour, to show that nothing is out of step.
static void expect_intact_traffic(void) {
    static const size_t LENGTHS[] = {0, 40, 1000, 300000};
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        size_t length = LENGTHS[i];
        step("a message of %zu bytes afterwards", length);
        unsigned char *out = new_bytes(length), *in = new_bytes(length);
        fill(out, length, seed_of(rank, i));
        MPI_Status status;
        MPI_Sendrecv(out, (int)length, MPI_BYTE, right(), AFTER, in, (int)length, MPI_BYTE, left(), AFTER, comm, &status);
        expect_status(&status, left(), AFTER, length, "message afterwards");
        expect_filled(in, length, seed_of(left(), i), "message afterwards");
        free_bytes(out, length);
        free_bytes(in, length);
    }
}

// Each rank receives `length` bytes from its left neighbour into a buffer of `space` bytes.
static void truncate_message(size_t length, size_t space, bool posted) {
    return_errors(true);
    unsigned char *out = new_bytes(length), *in = new_bytes(space);
    fill(out, length, seed_of(rank, 1));
    MPI_Request receive = MPI_REQUEST_NULL, sends[2];
    if (posted) {
        MPI_Irecv(in, (int)space, MPI_BYTE, left(), DATA, comm, &receive);
        step("wait until the receive is posted everywhere");
        MPI_Barrier(comm);
    }
    MPI_Isend(out, (int)length, MPI_BYTE, right(), DATA, comm, &sends[0]);
    MPI_Isend(NULL, 0, MPI_BYTE, right(), MARK, comm, &sends[1]);
    step("message behind the one to be truncated");
    await_peer(left(), MARK);
    step("truncated receive");
    MPI_Status status;
    int error = posted ? MPI_Wait(&receive, &status) : MPI_Recv(in, (int)space, MPI_BYTE, left(), DATA, comm, &status);
    expect_truncated(error, posted ? "posted receive" : "receive of an unexpected message");
    EXPECT(status.MPI_SOURCE == left() && status.MPI_TAG == DATA,
           "source %d and tag %d in the status of a truncated receive", status.MPI_SOURCE, status.MPI_TAG);
    step("wait for the sends");
    MPI_Wait(&sends[0], MPI_STATUS_IGNORE);
    MPI_Wait(&sends[1], MPI_STATUS_IGNORE);
    expect_intact_traffic();
    return_errors(false);
    free_bytes(out, length);
    free_bytes(in, space);
}

void check_truncate_unexpected_eager(void) {
    truncate_message(100, 50, false);
    truncate_message(100, 0, false);
}

void check_truncate_unexpected_large(void) { truncate_message(1 << 20, 1000, false); }

void check_truncate_posted_eager(void) {
    truncate_message(100, 50, true);
    truncate_message(1, 0, true);
}

void check_truncate_posted_large(void) { truncate_message(1 << 20, 500000, true); }

void check_truncate_mrecv(void) {
    enum { LENGTH = 3000 };
    unsigned char *out = new_bytes(LENGTH), *in = new_bytes(100);
    return_errors(true);
    fill(out, LENGTH, seed_of(rank, 1));
    MPI_Request send;
    MPI_Isend(out, LENGTH, MPI_BYTE, right(), DATA, comm, &send);
    MPI_Message message;
    MPI_Status status;
    step("MPI_Mprobe");
    MPI_Mprobe(left(), DATA, comm, &message, MPI_STATUS_IGNORE);
    step("truncated MPI_Mrecv");
    expect_truncated(MPI_Mrecv(in, 100, MPI_BYTE, &message, &status), "MPI_Mrecv");
    step("wait for the send");
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    expect_intact_traffic();
    return_errors(false);
    free_bytes(out, LENGTH);
    free_bytes(in, 100);
}

// One of the two requests of MPI_Waitall is a truncated receive, the other one is complete or still pending afterwards.
void check_truncate_waitall(void) {
    enum { LENGTH = 3000 };
    unsigned char *out = new_bytes(LENGTH), *in = new_bytes(100), *whole = new_bytes(LENGTH);
    return_errors(true);
    fill(out, LENGTH, seed_of(rank, 1));
    MPI_Request sends[2], receives[2];
    MPI_Status statuses[2];
    MPI_Irecv(in, 100, MPI_BYTE, left(), DATA, comm, &receives[0]);
    MPI_Irecv(whole, LENGTH, MPI_BYTE, left(), MARK, comm, &receives[1]);
    MPI_Isend(out, LENGTH, MPI_BYTE, right(), DATA, comm, &sends[0]);
    MPI_Isend(out, LENGTH, MPI_BYTE, right(), MARK, comm, &sends[1]);
    step("MPI_Waitall with one truncated receive");
    int class = MPI_SUCCESS;
    MPI_Error_class(MPI_Waitall(2, receives, statuses), &class);
    EXPECT(class == MPI_ERR_IN_STATUS, "MPI_Waitall: error class %d, expected MPI_ERR_IN_STATUS (%d)", class,
           MPI_ERR_IN_STATUS);
    expect_truncated(statuses[0].MPI_ERROR, "MPI_Waitall, truncated receive");
    if (statuses[1].MPI_ERROR == MPI_ERR_PENDING) {
        step("wait for the pending receive beside the truncated one");
        MPI_Wait(&receives[1], &statuses[1]);
    } else {
        EXPECT(statuses[1].MPI_ERROR == MPI_SUCCESS, "MPI_Waitall: error %d for the whole receive", statuses[1].MPI_ERROR);
    }
    expect_filled(whole, LENGTH, seed_of(left(), 1), "whole receive beside a truncated one");
    step("wait for the sends");
    wait_all(2, sends);
    expect_intact_traffic();
    return_errors(false);
    free_bytes(out, LENGTH);
    free_bytes(in, 100);
    free_bytes(whole, LENGTH);
}

void check_cancel(void) {
    unsigned char *in = new_bytes(1000);
    for (int i = 0; i < 20; i++) {
        step("cancelled receive %d", i);
        MPI_Request request;
        MPI_Status status;
        int cancelled = 0;
        MPI_Irecv(in, 1000, MPI_BYTE, i % 2 ? MPI_ANY_SOURCE : left(), 99, comm, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        EXPECT(cancelled, "a receive without a message was not cancelled");
    }
    // The message must go to the receive that follows, not to a cancelled one.
    MPI_Barrier(comm);
    unsigned char *out = new_bytes(1000);
    fill(out, 1000, seed_of(rank, 1));
    MPI_Status status;
    step("receive after the cancelled ones");
    MPI_Sendrecv(out, 1000, MPI_BYTE, right(), 99, in, 1000, MPI_BYTE, left(), 99, comm, &status);
    expect_status(&status, left(), 99, 1000, "receive after a cancelled one");
    expect_filled(in, 1000, seed_of(left(), 1), "receive after a cancelled one");
    free_bytes(out, 1000);
    free_bytes(in, 1000);
}

// The second of three equal receives is cancelled; the two messages that come then go to the first and the third.
void check_cancel_middle(void) {
    static unsigned char outs[2][500], ins[3][500];
    MPI_Request receives[3];
    MPI_Status statuses[3];
    for (int i = 0; i < 3; i++) {
        memset(ins[i], 0, sizeof ins[i]);
        MPI_Irecv(ins[i], 500, MPI_BYTE, left(), DATA, comm, &receives[i]);
    }
    MPI_Cancel(&receives[1]);
    step("wait for the cancelled receive");
    MPI_Wait(&receives[1], &statuses[1]);
    int cancelled = 0;
    MPI_Test_cancelled(&statuses[1], &cancelled);
    EXPECT(cancelled, "the second of three receives was not cancelled");
    MPI_Barrier(comm);
    for (int i = 0; i < 2; i++) {
        fill(outs[i], 500, seed_of(rank, i));
        MPI_Send(outs[i], 500, MPI_BYTE, right(), DATA, comm);
    }
    for (int i = 0; i < 3; i += 2) {
        step("receive %d of three", i);
        MPI_Wait(&receives[i], &statuses[i]);
        MPI_Test_cancelled(&statuses[i], &cancelled);
        EXPECT(!cancelled, "receive %d was cancelled, but only the second was to be", i);
        expect_status(&statuses[i], left(), DATA, 500, "receive beside a cancelled one");
        expect_filled(ins[i], 500, seed_of(left(), i / 2), "receive beside a cancelled one");
    }
    for (int i = 0; i < 500 && cancelled == 0; i++) {
        if (ins[1][i] != 0) {
            fail("the buffer of the cancelled receive was written");
            break;
        }
    }
}

// A receive whose message has already arrived either completes or is cancelled; in no case is the message lost.
void check_cancel_matched(void) {
    static const size_t LENGTHS[] = {100, 200000};
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        size_t length = LENGTHS[i];
        unsigned char *out = new_bytes(length), *in = new_bytes(length);
        fill(out, length, seed_of(rank, i));
        MPI_Request receive, sends[2];
        MPI_Irecv(in, (int)length, MPI_BYTE, left(), DATA, comm, &receive);
        MPI_Barrier(comm);
        MPI_Isend(out, (int)length, MPI_BYTE, right(), DATA, comm, &sends[0]);
        MPI_Isend(NULL, 0, MPI_BYTE, right(), MARK, comm, &sends[1]);
        step("message behind the one of %zu bytes", length);
        await_peer(left(), MARK);
        MPI_Cancel(&receive);
        MPI_Status status;
        int cancelled = 0;
        step("wait for the receive of %zu bytes that was cancelled late", length);
        MPI_Wait(&receive, &status);
        MPI_Test_cancelled(&status, &cancelled);
        if (cancelled) {
            step("second receive of %zu bytes", length);
            MPI_Recv(in, (int)length, MPI_BYTE, left(), DATA, comm, &status);
        }
        expect_status(&status, left(), DATA, length, "receive cancelled late");
        expect_filled(in, length, seed_of(left(), i), "receive cancelled late");
        wait_all(2, sends);
        free_bytes(out, length);
        free_bytes(in, length);
    }
}
