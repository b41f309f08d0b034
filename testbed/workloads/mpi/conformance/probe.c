// Checks of the four probes, each with eager and with large messages.
#include "conformance.h"

#include <stdlib.h>

enum { EAGER = 64, BIG = 1 << 20, MESSAGES = 6 };

// The messages that every rank sends to its right neighbour and that are still to be received there.
typedef struct stream {
    size_t length;
    unsigned char *outs[MESSAGES];
    unsigned char *in;
    MPI_Request requests[MESSAGES];
} stream;

static size_t length_of(const stream *stream, int number) { return stream->length + (size_t)number; }

static void start(stream *stream, size_t length) {
    stream->length = length;
    stream->in = new_bytes(length + MESSAGES);
    for (int i = 0; i < MESSAGES; i++) {
        size_t bytes = length_of(stream, i);
        stream->outs[i] = new_bytes(bytes);
        fill(stream->outs[i], bytes, seed_of(rank, i));
        MPI_Isend(stream->outs[i], (int)bytes, MPI_BYTE, right(), i, comm, &stream->requests[i]);
    }
}

static void finish(stream *stream) {
    step("wait for the sends");
    wait_all(MESSAGES, stream->requests);
    for (int i = 0; i < MESSAGES; i++) {
        free_bytes(stream->outs[i], length_of(stream, i));
    }
    free_bytes(stream->in, stream->length + MESSAGES);
}

static void receive(stream *stream, int number, int source, int tag) {
    step("receive of message %d after its probe", number);
    MPI_Status status;
    MPI_Recv(stream->in, (int)length_of(stream, number), MPI_BYTE, source, tag, comm, &status);
    expect_status(&status, left(), number, length_of(stream, number), "receive after a probe");
    expect_filled(stream->in, length_of(stream, number), seed_of(left(), number), "receive after a probe");
}

static void receive_matched(stream *stream, int number, MPI_Message *message, bool immediate) {
    step("receive of message %d, matched before", number);
    MPI_Status status;
    int bytes = (int)length_of(stream, number);
    if (immediate) {
        MPI_Request request;
        MPI_Imrecv(stream->in, bytes, MPI_BYTE, message, &request);
        MPI_Wait(&request, &status);
    } else {
        MPI_Mrecv(stream->in, bytes, MPI_BYTE, message, &status);
    }
    EXPECT(*message == MPI_MESSAGE_NULL, "the message handle is not null after the receive");
    expect_status(&status, left(), number, length_of(stream, number), "matched receive");
    expect_filled(stream->in, length_of(stream, number), seed_of(left(), number), "matched receive");
}

// The wildcards are tried in turn. Any tag finds the oldest message, so the messages are received in order.
static int source_of(int number) { return number % 2 ? MPI_ANY_SOURCE : left(); }

static int tag_of(int number) { return number % 4 < 2 ? number : MPI_ANY_TAG; }

static void probe(size_t length) {
    stream stream;
    start(&stream, length);
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Status status;
        for (int times = 0; times < 3; times++) {
            step("MPI_Probe of message %d", i);
            MPI_Probe(source_of(i), tag_of(i), comm, &status);
            expect_status(&status, left(), i, length_of(&stream, i), "MPI_Probe");
        }
        receive(&stream, i, status.MPI_SOURCE, status.MPI_TAG);
    }
    finish(&stream);
}

void check_probe_eager(void) { probe(EAGER); }

void check_probe_large(void) { probe(BIG); }

static void iprobe(size_t length) {
    stream stream;
    start(&stream, length);
    // In reverse order of tags, so that the probe has to search behind older messages.
    for (int i = MESSAGES - 1; i >= 0; i--) {
        MPI_Status status;
        int found = 0;
        step("MPI_Iprobe of message %d", i);
        while (!found) {
            MPI_Iprobe(source_of(i), i, comm, &found, &status);
        }
        expect_status(&status, left(), i, length_of(&stream, i), "MPI_Iprobe");
        receive(&stream, i, source_of(i), i);
    }
    finish(&stream);
}

void check_iprobe_eager(void) { iprobe(EAGER); }

void check_iprobe_large(void) { iprobe(BIG); }

// Two messages are taken out of the matching before either is received, and in the other order.
static void mprobe(size_t length) {
    stream stream;
    start(&stream, length);
    for (int i = 0; i < MESSAGES; i += 2) {
        MPI_Message first, second;
        MPI_Status status;
        step("MPI_Mprobe of message %d", i);
        MPI_Mprobe(source_of(i), tag_of(i), comm, &first, &status);
        expect_status(&status, left(), i, length_of(&stream, i), "MPI_Mprobe");
        step("MPI_Mprobe of message %d", i + 1);
        MPI_Mprobe(source_of(i + 1), tag_of(i + 1), comm, &second, &status);
        expect_status(&status, left(), i + 1, length_of(&stream, i + 1), "MPI_Mprobe");
        receive_matched(&stream, i + 1, &second, i == 2);
        receive_matched(&stream, i, &first, i != 2);
    }
    finish(&stream);
}

void check_mprobe_eager(void) { mprobe(EAGER); }

void check_mprobe_large(void) { mprobe(BIG); }

// A message that a matching probe took is invisible to later probes and receives.
static void improbe(size_t length) {
    stream stream;
    start(&stream, length);
    for (int i = 0; i < MESSAGES; i += 2) {
        MPI_Message message;
        MPI_Status status;
        int found = 0;
        step("MPI_Improbe of message %d", i);
        while (!found) {
            MPI_Improbe(source_of(i), i, comm, &found, &message, &status);
        }
        expect_status(&status, left(), i, length_of(&stream, i), "MPI_Improbe");
        MPI_Iprobe(MPI_ANY_SOURCE, i, comm, &found, MPI_STATUS_IGNORE);
        EXPECT(!found, "MPI_Iprobe found message %d, which MPI_Improbe had taken", i);
        step("receive of message %d past a taken message", i + 1);
        receive(&stream, i + 1, MPI_ANY_SOURCE, MPI_ANY_TAG);
        receive_matched(&stream, i, &message, i == 2);
    }
    finish(&stream);
}

void check_improbe_eager(void) { improbe(EAGER); }

void check_improbe_large(void) { improbe(BIG); }

void check_probe_no_message(void) {
    int found = 1;
    MPI_Message message;
    for (int i = 0; i < 1000; i++) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, MPI_STATUS_IGNORE);
        EXPECT(!found, "MPI_Iprobe found a message that was never sent");
        MPI_Improbe(left(), 1, comm, &found, &message, MPI_STATUS_IGNORE);
        EXPECT(!found, "MPI_Improbe found a message that was never sent");
    }
    MPI_Status status;
    MPI_Mprobe(MPI_PROC_NULL, 1, comm, &message, &status);
    EXPECT(message == MPI_MESSAGE_NO_PROC, "MPI_Mprobe of MPI_PROC_NULL gave a message");
    expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "MPI_Mprobe of MPI_PROC_NULL");
    MPI_Mrecv(NULL, 0, MPI_BYTE, &message, &status);
    expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "MPI_Mrecv of MPI_MESSAGE_NO_PROC");
}
