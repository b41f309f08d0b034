// Many connections of one program at once: `crowd serve PORT COUNT` takes so many and echoes what comes on each until all are closed;
// `crowd connect ADDRESS PORT COUNT` makes them, sends bytes of its own on each several times while all are open, and checks what comes
// back. It says "open" then, and closes them when its input ends.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MUST(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

enum { EVENTS = 512, ROUNDS = 3, MESSAGE = 300 };

static void watch(int set, int fd, int number) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)number << 32 | (uint32_t)fd};
    MUST(!epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void serve(int port, int count) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), set = epoll_create1(0), one = 1;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    MUST(!bind(listener, (struct sockaddr *)&own, sizeof own));
    MUST(!listen(listener, 4096));
    watch(set, listener, 0);
    int accepted = 0, closed = 0;
    while (closed < count) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(set, events, EVENTS, -1);
        MUST(ready >= 0 || errno == EINTR);
        for (int at = 0; at < ready; at++) {
            int fd = (int)(uint32_t)events[at].data.u64;
            if (fd == listener) {
                int taken;
                while ((taken = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    watch(set, taken, 0);
                    accepted++;
                }
                MUST(errno == EAGAIN);
                continue;
            }
            char bytes[4096];
            ssize_t len;
            while ((len = recv(fd, bytes, sizeof bytes, 0)) > 0)
                MUST(send(fd, bytes, len, 0) == len);
            if (len == 0) {
                MUST(!close(fd));
                closed++;
            } else
                MUST(errno == EAGAIN);
        }
    }
    printf("accepted %d\n", accepted);
}

static char byte_of(int number, int round, int at) {
    return (char)(number * 31 + round * 7 + at + number / 256);
}

static void round_trip(int set, const int *fds, char (*got)[MESSAGE], int *lens, int count, int round) {
    for (int number = 0; number < count; number++) {
        char bytes[MESSAGE];
        for (int at = 0; at < MESSAGE; at++)
            bytes[at] = byte_of(number, round, at);
        MUST(send(fds[number], bytes, MESSAGE, 0) == MESSAGE);
        lens[number] = 0;
    }
    for (int done = 0; done < count;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(set, events, EVENTS, 20000);
        MUST(ready > 0);
        for (int each = 0; each < ready; each++) {
            int number = (int)(events[each].data.u64 >> 32), fd = fds[number];
            ssize_t len = recv(fd, got[number] + lens[number], MESSAGE - lens[number], MSG_DONTWAIT);
            if (len < 0 && errno == EAGAIN)
                continue;
            MUST(len > 0);
            lens[number] += len;
            if (lens[number] < MESSAGE)
                continue;
            for (int at = 0; at < MESSAGE; at++)
                MUST(got[number][at] == byte_of(number, round, at));
            done++;
        }
    }
}

static void join(const char *address, int port, int count) {
    int *fds = malloc(count * sizeof *fds), *lens = malloc(count * sizeof *lens), set = epoll_create1(0);
    char(*got)[MESSAGE] = malloc((size_t)count * MESSAGE);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    MUST(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    double begin = seconds();
    for (int number = 0; number < count; number++) {
        fds[number] = socket(AF_INET, SOCK_STREAM, 0);
        MUST(fds[number] >= 0);
        MUST(!connect(fds[number], (struct sockaddr *)&to, sizeof to));
        watch(set, fds[number], number);
    }
    double connected = seconds();
    for (int round = 0; round < ROUNDS; round++)
        round_trip(set, fds, got, lens, count, round);
    printf("open: %d connections made in %.2f s, %d rounds in %.2f s\n", count, connected - begin, ROUNDS,
           seconds() - connected);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    for (int number = 0; number < count; number++)
        MUST(!close(fds[number]));
}

int main(int count, char **words) {
    if (count == 4 && !strcmp(words[1], "serve"))
        serve(atoi(words[2]), atoi(words[3]));
    else if (count == 5 && !strcmp(words[1], "connect"))
        join(words[2], atoi(words[3]), atoi(words[4]));
    else
        return 2;
    return 0;
}
