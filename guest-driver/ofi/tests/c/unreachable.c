/* Peers that cannot be reached: each send ends with an error of libfabric, in time. unreachable INTERFACE gone|absent|silent */

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

/* Sends to the address of this endpoint with another byte in one place. */
static long failure_at(struct end *end, size_t place, unsigned char byte) {
    unsigned char address[16];
    size_t len = sizeof address;
    fi_addr_t to;
    FI(fi_getname(&end->ep->fid, address, &len));
    address[place] ^= byte;
    CHECK(fi_av_insert(end->av, address, 1, &to, 0, NULL) == 1, "the address");
    return failure(end, to);
}

int main(int count, char **arguments) {
    CHECK(count == 3, "usage: unreachable INTERFACE gone|absent|silent");
    setenv("OMX_IFACES", arguments[1], 1);
    static struct end end;
    if (strcmp(arguments[2], "gone") != 0) {
        open_end(&end, -1, 0, (struct wishes){0});
        long result;
        if (strcmp(arguments[2], "absent") == 0) {
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
