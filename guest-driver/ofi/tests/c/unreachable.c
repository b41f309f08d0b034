/* Peers that cannot be reached: each send ends with an error of libfabric, in time. unreachable INTERFACE gone|absent|silent|many|stopped */

#include "end.h"

#include <signal.h>
#include <sys/wait.h>

/* Sends until the provider says why it cannot. */
static long failure(struct end *end, fi_addr_t to) {
    double until = now_s() + 60;
    char byte = 1;
    for (;;) {
        long result = fi_tsend(end->ep, &byte, 1, NULL, to, 1, &byte);
        if (result == 0) {
            struct fi_cq_tagged_entry entry;
            ssize_t count;
            while ((count = fi_cq_read(end->tx, &entry, 1)) == -FI_EAGAIN)
                CHECK(now_s() < until, "no end in time");
            if (count == -FI_EAVAIL) {
                struct fi_cq_err_entry error;
                memset(&error, 0, sizeof error);
                CHECK(fi_cq_readerr(end->tx, &error, 0) == 1, "a failure");
                CHECK(fi_cq_strerror(end->tx, error.prov_errno, NULL, NULL, 0) != NULL, "a sentence");
                return -error.err;
            }
            continue;
        }
        if (result != -FI_EAGAIN)
            return result;
        progress(end);
        CHECK(now_s() < until, "no error in time");
    }
}

/* Inserts the address of this endpoint with another byte in one place. */
static fi_addr_t address_at(struct end *end, size_t place, unsigned char byte) {
    unsigned char address[16];
    size_t len = sizeof address;
    fi_addr_t to;
    FI(fi_getname(&end->ep->fid, address, &len));
    address[place] ^= byte;
    CHECK(fi_av_insert(end->av, address, 1, &to, 0, NULL) == 1, "the address");
    return to;
}

static long failure_at(struct end *end, size_t place, unsigned char byte) {
    return failure(end, address_at(end, place, byte));
}

/* As many sends are kept as the queue is said to hold. Each ends once, with an error, and those to others arrive meanwhile. */
static void many(struct end *end) {
    enum { SIZE = 8 };
    fi_addr_t silent = address_at(end, 5, 1);
    char byte = 3, got = 0, contexts[SIZE], own;
    for (int i = 0; i < SIZE; i++)
        FI(fi_tsend(end->ep, &byte, 1, NULL, silent, 1, &contexts[i]));
    CHECK(fi_tsend(end->ep, &byte, 1, NULL, silent, 1, NULL) == -FI_EAGAIN, "there is room for more than was asked for");
    CHECK(fi_tinject(end->ep, &byte, 1, silent, 1) == -FI_EAGAIN, "there is room for more than was asked for");
    FI(fi_trecv(end->ep, &got, 1, NULL, FI_ADDR_UNSPEC, 9, 0, &own));
    AGAIN(end, fi_tinject(end->ep, &byte, 1, end->own, 9));
    CHECK(next(end, end->rx).op_context == &own && got == byte, "a message to a peer that is there");
    for (int i = 0; i < SIZE; i++) {
        struct fi_cq_err_entry error = next_error(end, end->tx);
        CHECK(error.op_context == &contexts[i] && error.err == FI_EHOSTUNREACH, "error %d of send %d", error.err, i);
    }
    nothing(end, end->tx);
    /* Kept sends that the program cannot be told of leave the error to the next call. */
    double until = now_s() + LIMIT_S;
    long result;
    while ((result = fi_tinject(end->ep, &byte, 1, silent, 1)) == 0 || result == -FI_EAGAIN) {
        progress(end);
        CHECK(now_s() < until, "no error in time");
    }
    CHECK(result == -FI_EHOSTUNREACH, "%s", fi_strerror((int) -result));
}

/* A process of this host that gets no processor for eleven seconds, and then takes the message. */
static void stopped(struct end *end, pid_t child) {
    char byte = 1;
    if (end->rank == 1) {
        raise(SIGSTOP);
        AGAIN(end, fi_trecv(end->ep, &byte, 1, NULL, end->peer, 9, 0, NULL));
        next(end, end->rx);
        close_end(end);
        return;
    }
    CHECK(waitpid(child, NULL, WUNTRACED) == child, "the other process");
    FI(fi_tsendmsg(end->ep,
                   &(struct fi_msg_tagged){.msg_iov = &(struct iovec){&byte, 1}, .iov_count = 1, .tag = 9, .context = &byte},
                   FI_COMPLETION | FI_MATCH_COMPLETE));
    double until = now_s() + 11;
    while (now_s() < until) {
        struct fi_cq_tagged_entry entry;
        CHECK(fi_cq_sread(end->tx, &entry, 1, NULL, 500) == -FI_EAGAIN, "nothing is over");
    }
    kill(child, SIGCONT);
    next(end, end->tx);
    close_end(end);
    CHECK(waitpid(child, NULL, 0) == child, "the other process");
}

int main(int count, char **arguments) {
    CHECK(count == 3, "usage: unreachable INTERFACE gone|absent|silent|many|stopped");
    setenv("OMX_IFACES", arguments[1], 1);
    static struct end end;
    if (strcmp(arguments[2], "gone") != 0 && strcmp(arguments[2], "stopped") != 0) {
        bool are_many = strcmp(arguments[2], "many") == 0;
        open_end(&end, -1, 0, (struct wishes){.tx_size = are_many ? 8 : 0});
        long result;
        if (are_many) {
            many(&end);
        } else if (strcmp(arguments[2], "absent") == 0) {
            /* An endpoint of this host that is not open. */
            result = failure_at(&end, 6, 30);
            CHECK(result == -FI_ECONNRESET, "%s", fi_strerror((int) -result));
            /* The endpoint itself as another process had it before. */
            result = failure_at(&end, 8, 1);
            CHECK(result == -FI_ECONNREFUSED, "%s", fi_strerror((int) -result));
        } else {
            /* A host that is not there. */
            result = failure_at(&end, 5, 1);
            CHECK(result == -FI_EHOSTUNREACH, "%s", fi_strerror((int) -result));
        }
        close_end(&end);
        return 0;
    }
    int other;
    pid_t child = begin_two(&other);
    int rank = child == 0;
    open_end(&end, other, rank, (struct wishes){0});
    char byte = 1;
    if (strcmp(arguments[2], "stopped") == 0) {
        stopped(&end, child);
        return 0;
    }
    AGAIN(&end, fi_tinject(end.ep, &byte, 1, end.peer, 9));
    AGAIN(&end, fi_trecv(end.ep, &byte, 1, NULL, end.peer, 9, 0, NULL));
    next(&end, end.rx);
    step(&end);
    if (rank == 1) {
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, NULL, 0) == child, "the other process");
    long result = failure(&end, end.peer);
    CHECK(result == -FI_ECONNRESET || result == -FI_EHOSTUNREACH, "%s", fi_strerror((int) -result));
    close_end(&end);
    return 0;
}
