// Checks of sending and receiving: sizes, matching, order, modes, messages to oneself, and ranks that compute.
#include "conformance.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4 << 20, FLOOD = 2000 };

// Calls `function` with 0 and with every power of two up to 4 MiB and its two neighbours.
static void for_all_sizes(void (*function)(size_t length)) {
    function(0);
    function(1);
    for (size_t power = 2; power <= LARGEST; power *= 2) {
        function(power - 1);
        function(power);
        function(power + 1);
    }
}

static void ring_of(size_t length) {
    step("ring of %zu bytes", length);
    unsigned char *out = new_bytes(length), *in = new_bytes(length);
    fill(out, length, seed_of(rank, (int)length));
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(in, (int)length, MPI_BYTE, left(), 5, comm, &request);
    MPI_Send(out, (int)length, MPI_BYTE, right(), 5, comm);
    MPI_Wait(&request, &status);
    expect_status(&status, left(), 5, length, "ring");
    expect_filled(in, length, seed_of(left(), (int)length), "ring");
    expect_filled(out, length, seed_of(rank, (int)length), "ring, send buffer");
    free_bytes(out, length);
    free_bytes(in, length);
}

void check_ring_sizes(void) { for_all_sizes(ring_of); }

// Every rank sends ROUNDS messages to every rank; the receiver takes them as they come and finds out from the status what
// it received.
void check_any_source(void) {
    enum { ROUNDS = 20 };
    static const size_t LENGTHS[] = {0, 1, 100, 4000, 40000};
    MPI_Request *requests = calloc((size_t)ranks * ROUNDS, sizeof *requests);
    unsigned char **outs = calloc((size_t)ranks * ROUNDS, sizeof *outs);
    int *next = calloc((size_t)ranks, sizeof *next);
    for (int i = 0; i < ranks * ROUNDS; i++) {
        int number = i / ranks;
        size_t length = LENGTHS[number % COUNT_OF(LENGTHS)];
        outs[i] = new_bytes(length);
        fill(outs[i], length, seed_of(rank, number));
        MPI_Isend(outs[i], (int)length, MPI_BYTE, i % ranks, number, comm, &requests[i]);
    }
    for (int i = 0; i < ranks * ROUNDS; i++) {
        step("receive %d of %d", i, ranks * ROUNDS);
        unsigned char *in = new_bytes(40000);
        MPI_Status status;
        MPI_Recv(in, 40000, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
        int source = status.MPI_SOURCE;
        if (source < 0 || source >= ranks) {
            fail("source %d in the status", source);
        } else {
            int number = next[source]++;
            size_t length = LENGTHS[number % COUNT_OF(LENGTHS)];
            expect_status(&status, source, number, length, "any source, any tag");
            expect_filled(in, length, seed_of(source, number), "any source, any tag");
        }
        free_bytes(in, 40000);
    }
    step("wait for the sends");
    wait_all(ranks * ROUNDS, requests);
    for (int i = 0; i < ranks * ROUNDS; i++) {
        free_bytes(outs[i], LENGTHS[i / ranks % COUNT_OF(LENGTHS)]);
    }
    free(requests);
    free(outs);
    free(next);
}

static void status_of(int tag, size_t length, int asked_source, int asked_tag) {
    step("tag %d, %zu bytes", tag, length);
    size_t space = length + 1000;
    unsigned char *out = new_bytes(length), *in = new_bytes(space);
    fill(out, length, seed_of(rank, tag));
    MPI_Request request;
    MPI_Status status;
    MPI_Isend(out, (int)length, MPI_BYTE, right(), tag, comm, &request);
    MPI_Recv(in, (int)space, MPI_BYTE, asked_source, asked_tag, comm, &status);
    expect_status(&status, left(), tag, length, "receive into a longer buffer");
    expect_filled(in, length, seed_of(left(), tag), "receive into a longer buffer");
    for (size_t i = length; i < space; i++) {
        if (in[i] != 0) {
            fail("byte %zu behind a message of %zu bytes was overwritten", i - length, length);
            break;
        }
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free_bytes(out, length);
    free_bytes(in, space);
}

void check_status(void) {
    int *upper = NULL, found = 0;
    MPI_Comm_get_attr(comm, MPI_TAG_UB, (void *)&upper, &found);
    EXPECT(found && *upper >= 32767, "MPI_TAG_UB is missing or too small");
    int last = found ? *upper : 32767;
    const int tags[] = {0, 1, 255, 32767, last - 1, last};
    for (int i = 0; i < COUNT_OF(tags); i++) {
        for (size_t length = 0; length < 200000; length = length * 50 + 1) {
            status_of(tags[i], length, left(), tags[i]);
            status_of(tags[i], length, MPI_ANY_SOURCE, tags[i]);
            status_of(tags[i], length, left(), MPI_ANY_TAG);
            status_of(tags[i], length, MPI_ANY_SOURCE, MPI_ANY_TAG);
            MPI_Barrier(comm);
        }
    }
    MPI_Status status;
    MPI_Recv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, MPI_ANY_TAG, comm, &status);
    expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "receive from MPI_PROC_NULL");
}

// Messages are received in another order of tags than the one in which they were sent.
void check_tag_selection(void) {
    enum { TAGS = 60 };
    static unsigned char outs[TAGS][300], ins[TAGS][300];
    MPI_Request requests[TAGS];
    for (int tag = 0; tag < TAGS; tag++) {
        fill(outs[tag], 300, seed_of(rank, tag));
        MPI_Isend(outs[tag], 300, MPI_BYTE, right(), tag, comm, &requests[tag]);
    }
    for (int i = 0; i < TAGS; i++) {
        int tag = i * 23 % TAGS;
        step("tag %d", tag);
        MPI_Status status;
        MPI_Recv(ins[tag], 300, MPI_BYTE, i % 2 ? MPI_ANY_SOURCE : left(), tag, comm, &status);
        expect_status(&status, left(), tag, 300, "chosen tag");
        expect_filled(ins[tag], 300, seed_of(left(), tag), "chosen tag");
    }
    wait_all(TAGS, requests);
}

// The sender overwrites its buffer as soon as the send is complete, as it may.
void check_buffer_reuse(void) {
    static const size_t LENGTHS[] = {1, 64, 200, 1000, 5000, 20000, 100000};
    enum { ROUNDS = 10 };
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        size_t length = LENGTHS[i];
        step("%zu bytes", length);
        unsigned char *out = new_bytes(length), *ins = new_bytes(length * ROUNDS);
        MPI_Request receives[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            MPI_Irecv(ins + (size_t)round * length, (int)length, MPI_BYTE, left(), round, comm, &receives[round]);
        }
        for (int round = 0; round < ROUNDS; round++) {
            fill(out, length, seed_of(rank, round));
            MPI_Send(out, (int)length, MPI_BYTE, right(), round, comm);
            memset(out, 0xFF, length);
        }
        wait_all(ROUNDS, receives);
        for (int round = 0; round < ROUNDS; round++) {
            expect_filled(ins + (size_t)round * length, length, seed_of(left(), round), "reused send buffer");
        }
        free_bytes(out, length);
        free_bytes(ins, length * ROUNDS);
    }
}

// Every rank exchanges 1 MiB with every rank at one time, itself included.
void check_all_pairs(void) {
    const size_t length = 1 << 20;
    unsigned char *out = new_bytes(length * (size_t)ranks), *in = new_bytes(length * (size_t)ranks);
    MPI_Request *requests = calloc(2 * (size_t)ranks, sizeof *requests);
    for (int peer = 0; peer < ranks; peer++) {
        fill(out + (size_t)peer * length, length, seed_of(rank, peer));
        MPI_Irecv(in + (size_t)peer * length, (int)length, MPI_BYTE, peer, 3, comm, &requests[peer]);
    }
    for (int peer = 0; peer < ranks; peer++) {
        MPI_Isend(out + (size_t)peer * length, (int)length, MPI_BYTE, peer, 3, comm, &requests[ranks + peer]);
    }
    step("wait for all");
    wait_all(2 * ranks, requests);
    for (int peer = 0; peer < ranks; peer++) {
        expect_filled(in + (size_t)peer * length, length, seed_of(peer, rank), "exchange of all pairs");
    }
    free(requests);
    free_bytes(out, length * (size_t)ranks);
    free_bytes(in, length * (size_t)ranks);
}

// The receiver posts its receive only after a signal that the sender gives last, so the synchronous send must be incomplete
// until then, however often it is tested and whatever else passes between the two ranks.
static void synchronous_send(size_t length) {
    enum { DATA = 1, CONTROL = 2, ANSWER = 3, ROUND_TRIPS = 50 };
    bool sends = rank % 2 == 0;
    int peer = sends ? rank + 1 : rank - 1;
    if (peer >= ranks) {
        return;
    }
    unsigned char *bytes = new_bytes(length);
    if (sends) {
        fill(bytes, length, seed_of(rank, 1));
        MPI_Request request;
        MPI_Issend(bytes, (int)length, MPI_BYTE, peer, DATA, comm, &request);
        int complete = 0;
        for (int i = 0; i < ROUND_TRIPS; i++) {
            step("round trip %d before the match", i);
            for (int j = 0; j < 20 && !complete; j++) {
                MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
            }
            EXPECT(!complete, "a synchronous send of %zu bytes was complete before the receive was posted", length);
            signal_peer(peer, CONTROL);
            await_peer(peer, ANSWER);
        }
        signal_peer(peer, CONTROL);
        step("wait for the synchronous send");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        step("blocking synchronous send");
        MPI_Ssend(bytes, (int)length, MPI_BYTE, peer, DATA, comm);
    } else {
        for (int i = 0; i < ROUND_TRIPS; i++) {
            step("answer to round trip %d", i);
            await_peer(peer, CONTROL);
            signal_peer(peer, ANSWER);
        }
        await_peer(peer, CONTROL);
        for (int i = 0; i < 2; i++) {
            step("receive of synchronous send %d", i);
            memset(bytes, 0, length);
            MPI_Status status;
            MPI_Recv(bytes, (int)length, MPI_BYTE, peer, DATA, comm, &status);
            expect_status(&status, peer, DATA, length, "synchronous send");
            expect_filled(bytes, length, seed_of(peer, 1), "synchronous send");
        }
    }
    free_bytes(bytes, length);
}

void check_ssend_eager(void) { synchronous_send(100); }

void check_ssend_large(void) { synchronous_send(1 << 20); }

void check_bsend(void) {
    enum { MESSAGES = 40, LENGTH = 5000 };
    int space = MESSAGES * (LENGTH + MPI_BSEND_OVERHEAD) + 100000;
    unsigned char *buffer = new_bytes((size_t)space);
    MPI_Buffer_attach(buffer, space);
    static unsigned char out[LENGTH], in[LENGTH];
    for (int i = 0; i < MESSAGES; i++) {
        fill(out, LENGTH, seed_of(rank, i));
        MPI_Bsend(out, LENGTH, MPI_BYTE, right(), i, comm);
    }
    memset(out, 0, sizeof out);
    for (int i = MESSAGES - 1; i >= 0; i--) {
        step("buffered message %d", i);
        MPI_Status status;
        MPI_Recv(in, LENGTH, MPI_BYTE, left(), i, comm, &status);
        expect_status(&status, left(), i, LENGTH, "buffered send");
        expect_filled(in, LENGTH, seed_of(left(), i), "buffered send");
    }
    void *detached = NULL;
    int detached_space = 0;
    step("MPI_Buffer_detach");
    MPI_Buffer_detach(&detached, &detached_space);
    EXPECT(detached == buffer, "MPI_Buffer_detach returned another buffer");
    free_bytes(buffer, (size_t)space);
}

static size_t flood_length(int number) { return (size_t)(number * 7 % 5) * 250; }

void check_flood(void) {
    unsigned char *outs = new_bytes(FLOOD * 1000), *in = new_bytes(1000);
    MPI_Request *requests = calloc(FLOOD, sizeof *requests);
    for (int i = 0; i < FLOOD; i++) {
        unsigned char *out = outs + i * 1000;
        fill(out, flood_length(i), seed_of(rank, i));
        MPI_Isend(out, (int)flood_length(i), MPI_BYTE, right(), i, comm, &requests[i]);
    }
    for (int i = FLOOD - 1; i >= 0; i--) {
        step("message %d", i);
        MPI_Status status;
        MPI_Recv(in, 1000, MPI_BYTE, left(), i, comm, &status);
        expect_status(&status, left(), i, flood_length(i), "flood");
        expect_filled(in, flood_length(i), seed_of(left(), i), "flood");
    }
    step("wait for the sends");
    wait_all(FLOOD, requests);
    free(requests);
    free_bytes(outs, FLOOD * 1000);
    free_bytes(in, 1000);
}

// Messages of one tag must be received in the order in which they were sent, whatever protocol their sizes select.
static void order(bool posted) {
    static const size_t LENGTHS[] = {0, 100000, 8, 1 << 20, 1, 4096, 300, 40000, 16, 9000, 70000, 64};
    enum { MESSAGES = 48 };
    unsigned char *outs[MESSAGES], *ins[MESSAGES];
    MPI_Request sends[MESSAGES], receives[MESSAGES];
    MPI_Status statuses[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) {
        size_t length = LENGTHS[i % COUNT_OF(LENGTHS)];
        outs[i] = new_bytes(length);
        ins[i] = new_bytes(1 << 20);
        fill(outs[i], length, seed_of(rank, i));
    }
    for (int i = 0; i < MESSAGES && posted; i++) {
        MPI_Irecv(ins[i], 1 << 20, MPI_BYTE, i % 3 ? left() : MPI_ANY_SOURCE, 6, comm, &receives[i]);
    }
    if (posted) {
        step("barrier after posting");
        MPI_Barrier(comm);
    }
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Isend(outs[i], (int)LENGTHS[i % COUNT_OF(LENGTHS)], MPI_BYTE, right(), 6, comm, &sends[i]);
    }
    for (int i = 0; i < MESSAGES; i++) {
        step("message %d", i);
        if (posted) {
            MPI_Wait(&receives[i], &statuses[i]);
        } else {
            MPI_Recv(ins[i], 1 << 20, MPI_BYTE, i % 3 ? left() : MPI_ANY_SOURCE, 6, comm, &statuses[i]);
        }
    }
    step("wait for the sends");
    wait_all(MESSAGES, sends);
    for (int i = 0; i < MESSAGES; i++) {
        size_t length = LENGTHS[i % COUNT_OF(LENGTHS)];
        char what[60];
        snprintf(what, sizeof what, "message %d in order", i);
        expect_status(&statuses[i], left(), 6, length, what);
        expect_filled(ins[i], length, seed_of(left(), i), what);
        free_bytes(outs[i], length);
        free_bytes(ins[i], 1 << 20);
    }
}

void check_order(void) { order(false); }

void check_order_posted(void) { order(true); }

static void self_of(size_t length) {
    unsigned char *out = new_bytes(length), *in = new_bytes(length);
    for (int send_first = 0; send_first < 2; send_first++) {
        step("%zu bytes to itself, %s first", length, send_first ? "send" : "receive");
        fill(out, length, seed_of(rank, send_first));
        memset(in, 0, length);
        MPI_Request requests[2];
        MPI_Status statuses[2];
        if (send_first) {
            MPI_Isend(out, (int)length, MPI_BYTE, rank, 8, comm, &requests[1]);
            MPI_Irecv(in, (int)length, MPI_BYTE, rank, 8, comm, &requests[0]);
        } else {
            MPI_Irecv(in, (int)length, MPI_BYTE, MPI_ANY_SOURCE, 8, comm, &requests[0]);
            MPI_Isend(out, (int)length, MPI_BYTE, rank, 8, comm, &requests[1]);
        }
        MPI_Waitall(2, requests, statuses);
        expect_status(&statuses[0], rank, 8, length, "message to itself");
        expect_filled(in, length, seed_of(rank, send_first), "message to itself");
    }
    free_bytes(out, length);
    free_bytes(in, length);
}

void check_self_sizes(void) { for_all_sizes(self_of); }

static void self_sendrecv_of(size_t length) {
    step("MPI_Sendrecv of %zu bytes to itself", length);
    unsigned char *out = new_bytes(length), *in = new_bytes(length);
    fill(out, length, seed_of(rank, 2));
    MPI_Status status;
    MPI_Sendrecv(out, (int)length, MPI_BYTE, rank, 9, in, (int)length, MPI_BYTE, rank, 9, comm, &status);
    expect_status(&status, rank, 9, length, "MPI_Sendrecv to itself");
    expect_filled(in, length, seed_of(rank, 2), "MPI_Sendrecv to itself");
    MPI_Sendrecv_replace(in, (int)length, MPI_BYTE, right(), 9, left(), 9, comm, &status);
    expect_status(&status, left(), 9, length, "MPI_Sendrecv_replace");
    expect_filled(in, length, seed_of(left(), 2), "MPI_Sendrecv_replace");
    free_bytes(out, length);
    free_bytes(in, length);
}

void check_self_sendrecv(void) { for_all_sizes(self_sendrecv_of); }

void check_self_probe(void) {
    static const size_t LENGTHS[] = {0, 100, 1 << 20};
    for (int i = 0; i < COUNT_OF(LENGTHS); i++) {
        size_t length = LENGTHS[i];
        step("probe of %zu bytes from itself", length);
        unsigned char *out = new_bytes(length), *in = new_bytes(length);
        fill(out, length, seed_of(rank, i));
        MPI_Request request;
        MPI_Status status;
        MPI_Isend(out, (int)length, MPI_BYTE, rank, i, comm, &request);
        MPI_Probe(rank, MPI_ANY_TAG, comm, &status);
        expect_status(&status, rank, i, length, "MPI_Probe of a message to itself");
        MPI_Message message;
        MPI_Mprobe(MPI_ANY_SOURCE, i, comm, &message, &status);
        expect_status(&status, rank, i, length, "MPI_Mprobe of a message to itself");
        MPI_Mrecv(in, (int)length, MPI_BYTE, &message, &status);
        expect_filled(in, length, seed_of(rank, i), "MPI_Mrecv of a message to itself");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        free_bytes(out, length);
        free_bytes(in, length);
    }
}

void check_persistent(void) {
    static const size_t LENGTHS[] = {0, 50, 3000, 200000};
    enum { KINDS = COUNT_OF(LENGTHS), ROUNDS = 30 };
    unsigned char *outs[KINDS], *ins[KINDS];
    MPI_Request requests[2 * KINDS];
    MPI_Status statuses[2 * KINDS];
    for (int i = 0; i < KINDS; i++) {
        int length = (int)LENGTHS[i];
        outs[i] = new_bytes(LENGTHS[i]);
        ins[i] = new_bytes(LENGTHS[i]);
        MPI_Recv_init(ins[i], length, MPI_BYTE, left(), i, comm, &requests[i]);
        if (i % 2 == 0) {
            MPI_Send_init(outs[i], length, MPI_BYTE, right(), i, comm, &requests[KINDS + i]);
        } else {
            MPI_Ssend_init(outs[i], length, MPI_BYTE, right(), i, comm, &requests[KINDS + i]);
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        step("round %d", round);
        for (int i = 0; i < KINDS; i++) {
            fill(outs[i], LENGTHS[i], seed_of(rank, round * KINDS + i));
        }
        if (round % 2 == 0) {
            MPI_Startall(2 * KINDS, requests);
        } else {
            for (int i = 2 * KINDS - 1; i >= 0; i--) {
                MPI_Start(&requests[i]);
            }
        }
        MPI_Waitall(2 * KINDS, requests, statuses);
        for (int i = 0; i < KINDS; i++) {
            expect_status(&statuses[i], left(), i, LENGTHS[i], "persistent receive");
            expect_filled(ins[i], LENGTHS[i], seed_of(left(), round * KINDS + i), "persistent receive");
        }
    }
    for (int i = 0; i < KINDS; i++) {
        MPI_Request_free(&requests[i]);
        MPI_Request_free(&requests[KINDS + i]);
        free_bytes(outs[i], LENGTHS[i]);
        free_bytes(ins[i], LENGTHS[i]);
    }
}

// One message of 300 MiB from each even rank to the next one.
void check_large_message(void) {
    const size_t length = (size_t)300 << 20;
    int peer = rank % 2 == 0 ? rank + 1 : rank - 1;
    if (peer < ranks) {
        step("%zu bytes", length);
        unsigned char *bytes = new_bytes(length);
        if (rank % 2 == 0) {
            fill(bytes, length, seed_of(rank, 1));
            MPI_Send(bytes, (int)length, MPI_BYTE, peer, 1, comm);
        } else {
            MPI_Status status;
            MPI_Recv(bytes, (int)length, MPI_BYTE, peer, 1, comm, &status);
            expect_status(&status, peer, 1, length, "300 MiB");
            expect_filled(bytes, length, seed_of(peer, 1), "300 MiB");
        }
        free_bytes(bytes, length);
    }
    step("barrier at the end");
    MPI_Barrier(comm);
}

// One rank computes while all others send to it, first before it has posted receives, then after.
void check_busy_receiver(void) {
    const size_t length = LARGEST;
    for (int posted = 0; posted < 2; posted++) {
        step("%s receives", posted ? "posted" : "unexpected");
        if (rank == 0) {
            unsigned char *ins = new_bytes(length * (size_t)ranks);
            MPI_Request *requests = calloc((size_t)ranks, sizeof *requests);
            requests[0] = MPI_REQUEST_NULL;
            if (posted == 0) {
                compute_for(1.0);
            }
            for (int peer = 1; peer < ranks; peer++) {
                MPI_Irecv(ins + length * (size_t)peer, (int)length, MPI_BYTE, peer, posted, comm, &requests[peer]);
            }
            if (posted == 1) {
                compute_for(1.0);
            }
            wait_all(ranks, requests);
            for (int peer = 1; peer < ranks; peer++) {
                expect_filled(ins + length * (size_t)peer, length, seed_of(peer, posted), "message to a busy rank");
            }
            free(requests);
            free_bytes(ins, length * (size_t)ranks);
        } else {
            unsigned char *out = new_bytes(length);
            fill(out, length, seed_of(rank, posted));
            MPI_Send(out, (int)length, MPI_BYTE, 0, posted, comm);
            free_bytes(out, length);
        }
        MPI_Barrier(comm);
    }
}

// A rank starts large sends to all others and computes before it waits for them.
void check_busy_sender(void) {
    const size_t length = LARGEST;
    unsigned char *bytes = new_bytes(length);
    if (rank == 0) {
        fill(bytes, length, seed_of(0, 7));
        MPI_Request *requests = calloc((size_t)ranks, sizeof *requests);
        requests[0] = MPI_REQUEST_NULL;
        for (int peer = 1; peer < ranks; peer++) {
            MPI_Isend(bytes, (int)length, MPI_BYTE, peer, 7, comm, &requests[peer]);
        }
        compute_for(1.0);
        step("wait for the sends");
        wait_all(ranks, requests);
        free(requests);
    } else {
        step("receive from a busy rank");
        MPI_Recv(bytes, (int)length, MPI_BYTE, 0, 7, comm, MPI_STATUS_IGNORE);
        expect_filled(bytes, length, seed_of(0, 7), "message from a busy rank");
    }
    free_bytes(bytes, length);
}
