/* Runs a script of socket calls between two hosts and prints each call with its result and errno. The output over ESP must be that over
 * TCP. Both ends run it: `differential server OWN PEER` and `differential client OWN PEER`. What a call depends on is settled beforehand
 * by a datagram in each direction, never by waiting for a while. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct in_addr own, peer;
static int is_server;
static const char *name;
static int listener;
static int meeting;

#define PORT 7100
#define MEETING 7101

static void say(const char *call, long value, int error) {
    printf("%s %s: %s = %ld%s%s\n", is_server ? "server" : "client", name, call, value, value < 0 ? " " : "",
           value < 0 ? strerrorname_np(error) : "");
    fflush(stdout);
}

/* Makes a call and prints it. */
#define R(call)                                                                                                                   \
    ({                                                                                                                            \
        errno = 0;                                                                                                                \
        long value_ = (long)(call);                                                                                               \
        say(#call, value_, errno);                                                                                                \
        value_;                                                                                                                   \
    })

static void need(int held, const char *what) {
    if (!held) {
        perror(what);
        exit(1);
    }
}

/* Both ends have come here. */
static unsigned round_number;
static void meet(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(MEETING), .sin_addr = peer};
    round_number++;
    unsigned heard = 0;
    while (heard < round_number) {
        sendto(meeting, &round_number, sizeof round_number, 0, (void *)&to, sizeof to);
        struct pollfd one = {.fd = meeting, .events = POLLIN};
        if (poll(&one, 1, 20) > 0 && recv(meeting, &heard, sizeof heard, 0) < 0)
            heard = 0;
    }
    /* The other end may have missed it. */
    sendto(meeting, &round_number, sizeof round_number, 0, (void *)&to, sizeof to);
}

static int fresh(int flags) {
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    need(fd >= 0, "socket");
    return fd;
}

static struct sockaddr_in address(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = peer};
}

/* One connection between the two ends. */
static int joined(void) {
    meet();
    int fd;
    if (is_server) {
        fd = accept(listener, NULL, NULL);
        need(fd >= 0, "accept");
    } else {
        struct sockaddr_in to = address(PORT);
        fd = fresh(0);
        need(connect(fd, (void *)&to, sizeof to) == 0, "connect");
    }
    meet();
    return fd;
}

/* Waits until there is something to be read, however that comes. */
static void readable(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    need(poll(&one, 1, 10000) == 1, "nothing came");
}

/* Waits until so many bytes are there. */
static void unread(int fd, int wanted) {
    int there = 0;
    while (there < wanted) {
        need(ioctl(fd, FIONREAD, &there) == 0, "FIONREAD");
    }
}

static int events_now(int fd, int events) {
    struct pollfd one = {.fd = fd, .events = events};
    need(poll(&one, 1, 0) >= 0, "poll");
    return one.revents;
}

/* The state has arrived when these events are there. */
static void await_events(int fd, int events) {
    while ((events_now(fd, events) & events) != events) {
    }
}
#define ALL_EVENTS (POLLIN | POLLOUT | POLLRDHUP | POLLPRI)

static void echo(void) {
    int fd = joined();
    char bytes[64] = {0};
    if (is_server) {
        R(recv(fd, bytes, sizeof bytes, 0));
        R(send(fd, bytes, 5, 0));
        R(recv(fd, bytes, sizeof bytes, 0));
        R(close(fd));
        R(close(fd));
    } else {
        R(write(fd, "hello", 5));
        R(read(fd, bytes, sizeof bytes));
        R(memcmp(bytes, "hello", 5));
        R(shutdown(fd, SHUT_WR));
        R(read(fd, bytes, sizeof bytes));
        R(read(fd, bytes, sizeof bytes));
        R(close(fd));
        R(read(fd, bytes, sizeof bytes));
        R(send(fd, bytes, 1, 0));
    }
}

static void flags(void) {
    int fd = joined();
    char bytes[64] = {0};
    if (is_server) {
        R(recv(fd, bytes, 10, MSG_DONTWAIT));
        meet();
        unread(fd, 10);
        R(recv(fd, bytes, 4, MSG_PEEK));
        R(memcmp(bytes, "0123", 4));
        R(recv(fd, bytes, 4, 0));
        R(memcmp(bytes, "0123", 4));
        R(recv(fd, NULL, 2, MSG_TRUNC));
        R(recv(fd, bytes, 4, MSG_PEEK | MSG_WAITALL));
        R(memcmp(bytes, "6789", 4));
        R(recv(fd, bytes, 0, 0));
        R(recv(fd, bytes, 4, MSG_OOB));
        R(recv(fd, bytes, 4, MSG_ERRQUEUE));
        meet();
        R(recv(fd, bytes, 14, MSG_WAITALL));
        R(memcmp(bytes, "6789abcdefghij", 14));
        R(recv(fd, bytes, 14, MSG_WAITALL));
        R(recv(fd, bytes, 14, MSG_WAITALL));
    } else {
        meet();
        R(send(fd, "0123456789", 10, MSG_MORE));
        R(send(fd, "", 0, 0));
        meet();
        R(send(fd, "abcdefghij", 10, MSG_NOSIGNAL | MSG_DONTWAIT));
        R(send(fd, "rest", 4, 0));
        R(shutdown(fd, SHUT_WR));
        R(recv(fd, bytes, 1, 0));
    }
    close(fd);
}

static void nonblocking(void) {
    int fd = joined();
    static char block[100000];
    if (is_server) {
        R(fcntl(fd, F_SETFL, O_NONBLOCK));
        R(fcntl(fd, F_GETFL) & O_NONBLOCK);
        R(read(fd, block, 10));
        R(recv(fd, block, 10, MSG_WAITALL));
        long sum = 0, sent;
        do {
            /* The peer may still be taking what was sent before. */
            while ((sent = send(fd, block, sizeof block, 0)) > 0)
                sum += sent;
            need(errno == EAGAIN, "send");
        } while (events_now(fd, POLLOUT));
        R(sent);
        R(events_now(fd, ALL_EVENTS));
        meet();
        await_events(fd, POLLOUT);
        R(events_now(fd, ALL_EVENTS));
        int off = 0;
        R(ioctl(fd, FIONBIO, &off));
        R(shutdown(fd, SHUT_WR));
        long heard = 0;
        R(recv(fd, &heard, sizeof heard, MSG_WAITALL));
        R(heard == sum);
    } else {
        meet();
        long sum = 0, got;
        while ((got = read(fd, block, sizeof block)) > 0)
            sum += got;
        R(got);
        R(send(fd, &sum, sizeof sum, 0));
    }
    close(fd);
}

static void shutdowns(void) {
    int fd = joined();
    char bytes[16] = {0};
    if (is_server) {
        R(shutdown(fd, 7));
        R(shutdown(fd, SHUT_WR));
        R(shutdown(fd, SHUT_WR));
        R(send(fd, "x", 1, MSG_NOSIGNAL));
        R(recv(fd, bytes, 4, MSG_WAITALL));
        R(events_now(fd, ALL_EVENTS));
        R(shutdown(fd, SHUT_RD));
        R(recv(fd, bytes, 4, 0));
        meet();
        R(close(fd));
    } else {
        R(recv(fd, bytes, 4, 0));
        R(events_now(fd, ALL_EVENTS));
        R(send(fd, "late", 4, 0));
        meet();
        R(shutdown(fd, SHUT_WR));
        await_events(fd, POLLHUP);
        R(events_now(fd, ALL_EVENTS));
        R(send(fd, "x", 1, MSG_NOSIGNAL));
        R(close(fd));
    }
}

static int pipe_signals;
static void on_pipe(int signal) {
    (void)signal;
    pipe_signals++;
}

static void shut_both(void) {
    int fd = joined();
    char bytes[16] = {0};
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    if (is_server) {
        R(shutdown(fd, SHUT_RDWR));
        R(events_now(fd, ALL_EVENTS));
        meet();
        await_events(fd, POLLERR);
        R(events_now(fd, ALL_EVENTS));
        R(recv(fd, bytes, 4, 0));
        R(recv(fd, bytes, 4, 0));
        R(getpeername(fd, (void *)&at, &len));
    } else {
        meet();
        await_events(fd, POLLRDHUP);
        R(send(fd, "for nobody", 10, 0));
        await_events(fd, POLLHUP);
        R(events_now(fd, ALL_EVENTS));
        R(send(fd, "more", 4, MSG_NOSIGNAL));
        R(recv(fd, bytes, 4, 0));
    }
    meet();
    R(close(fd));
}

static void peer_closes(void) {
    int fd = joined();
    char bytes[16] = {0};
    if (is_server) {
        R(close(fd));
        meet();
        meet();
    } else {
        signal(SIGPIPE, on_pipe);
        meet();
        await_events(fd, POLLRDHUP);
        R(events_now(fd, ALL_EVENTS));
        R(recv(fd, bytes, 4, 0));
        R(send(fd, "first", 5, 0));
        await_events(fd, POLLHUP);
        R(events_now(fd, ALL_EVENTS));
        R(send(fd, "second", 6, 0));
        R(send(fd, "third", 5, 0));
        R(pipe_signals > 0);
        R(recv(fd, bytes, 4, 0));
        int error = -1;
        socklen_t len = sizeof error;
        R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
        R(error);
        signal(SIGPIPE, SIG_IGN);
        R(close(fd));
        meet();
    }
}

static void resets(void) {
    int fd = joined();
    char bytes[16] = {0};
    if (is_server) {
        struct linger now = {.l_onoff = 1};
        R(send(fd, "data", 4, 0));
        meet();
        R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
        R(close(fd));
        meet();
    } else {
        unread(fd, 4);
        meet();
        meet();
        await_events(fd, POLLERR);
        R(events_now(fd, ALL_EVENTS));
        R(recv(fd, bytes, 16, 0));
        R(recv(fd, bytes, 16, 0));
        R(recv(fd, bytes, 16, 0));
        R(send(fd, "x", 1, MSG_NOSIGNAL));
        R(shutdown(fd, SHUT_RDWR));
        R(events_now(fd, ALL_EVENTS));
        struct sockaddr_in at;
        socklen_t len = sizeof at;
        R(getpeername(fd, (void *)&at, &len));
        R(getsockname(fd, (void *)&at, &len));
        R(close(fd));
    }
}

static void unread_close(void) {
    int fd = joined();
    if (is_server) {
        unread(fd, 6);
        R(close(fd));
        meet();
    } else {
        R(send(fd, "unread", 6, 0));
        meet();
        await_events(fd, POLLERR);
        int error = -1;
        socklen_t len = sizeof error;
        R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
        R(error);
        R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
        R(error);
        R(send(fd, "x", 1, MSG_NOSIGNAL));
        R(close(fd));
    }
}

static void requests(void) {
    int fd = joined();
    int count = -1;
    char bytes[16];
    if (is_server) {
        R(ioctl(fd, FIONREAD, &count));
        R(count);
        meet();
        unread(fd, 10);
        R(ioctl(fd, FIONREAD, &count));
        R(count);
        R(recv(fd, bytes, 4, 0));
        R(ioctl(fd, FIONREAD, &count));
        R(count);
        R(ioctl(fd, SIOCATMARK, &count));
        R(ioctl(fd, TIOCGWINSZ, bytes));
        meet();
    } else {
        R(ioctl(fd, SIOCOUTQ, &count));
        R(count);
        meet();
        R(send(fd, "0123456789", 10, 0));
        do {
            need(ioctl(fd, SIOCOUTQ, &count) == 0, "SIOCOUTQ");
        } while (count > 0);
        R(count);
        meet();
    }
    close(fd);
}

static void options(void) {
    int fd = joined();
    int value = -1;
    socklen_t len = sizeof value;
#define OPTION(level, option)                                                                                                     \
    do {                                                                                                                          \
        value = -1;                                                                                                               \
        len = sizeof value;                                                                                                       \
        R(getsockopt(fd, level, option, &value, &len));                                                                           \
        R(value);                                                                                                                 \
    } while (0)
    OPTION(SOL_SOCKET, SO_TYPE);
    OPTION(SOL_SOCKET, SO_DOMAIN);
    OPTION(SOL_SOCKET, SO_PROTOCOL);
    OPTION(SOL_SOCKET, SO_ERROR);
    OPTION(SOL_SOCKET, SO_ACCEPTCONN);
    OPTION(SOL_SOCKET, SO_KEEPALIVE);
    OPTION(IPPROTO_TCP, TCP_NODELAY);
    value = 1;
    R(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    OPTION(IPPROTO_TCP, TCP_NODELAY);
    R(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
    OPTION(SOL_SOCKET, SO_KEEPALIVE);
    R(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value));
    value = 70000;
    R(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, sizeof value));
    OPTION(SOL_SOCKET, SO_SNDBUF);
    R(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){70000}, sizeof value));
    OPTION(SOL_SOCKET, SO_RCVBUF);
    R(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 1));
    R(setsockopt(fd, IPPROTO_TCP, 9999, &value, sizeof value));
    R(setsockopt(fd, SOL_SOCKET, 9999, &value, sizeof value));
    R(setsockopt(fd, IPPROTO_IP, 1 /* IP_TOS */, &(int){16}, sizeof value));
    R(getsockopt(fd, 9999, 1, &value, &len));
    struct timeval limit = {.tv_usec = 50000};
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    R(recv(fd, &value, 1, 0));
    struct tcp_info info = {0};
    len = sizeof info;
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
    R(info.tcpi_state);
    meet();
    close(fd);
}

static void names(void) {
    int fd = joined();
    struct sockaddr_in of_peer = {0}, of_own = {0};
    socklen_t len = sizeof of_peer;
    R(getpeername(fd, (void *)&of_peer, &len));
    R(len);
    R(of_peer.sin_family);
    R(of_peer.sin_addr.s_addr == peer.s_addr);
    len = sizeof of_own;
    R(getsockname(fd, (void *)&of_own, &len));
    R(of_own.sin_addr.s_addr == own.s_addr);
    len = 4;
    R(getpeername(fd, (void *)&of_peer, &len));
    R(len);
    R(getpeername(fd, NULL, &len));
    unsigned short port = 0;
    if (is_server) {
        R(ntohs(of_own.sin_port));
        R(send(fd, &of_peer.sin_port, 2, 0));
    } else {
        R(ntohs(of_peer.sin_port));
        R(recv(fd, &port, 2, MSG_WAITALL));
        R(port == of_own.sin_port);
    }
    struct sockaddr_in to = address(PORT);
    R(connect(fd, (void *)&to, sizeof to));
    R(listen(fd, 1));
    R(bind(fd, (void *)&of_own, sizeof of_own));
    R(accept(fd, NULL, NULL));
    meet();
    close(fd);
}

static void connects(void) {
    meet();
    if (is_server) {
        struct sockaddr_in from = {0};
        socklen_t len = sizeof from;
        int fd = accept4(listener, (void *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        R(len);
        R(from.sin_addr.s_addr == peer.s_addr);
        R(fcntl(fd, F_GETFL) & O_NONBLOCK);
        R(fcntl(fd, F_GETFD));
        R(read(fd, &len, 1));
        meet();
        close(fd);
    } else {
        struct sockaddr_in to = address(PORT), nobody = address(7177);
        int fd = fresh(SOCK_NONBLOCK), error = -1;
        socklen_t len = sizeof error;
        R(connect(fd, (void *)&to, sizeof to));
        await_events(fd, POLLOUT);
        R(events_now(fd, ALL_EVENTS));
        R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
        R(error);
        R(connect(fd, (void *)&to, sizeof to));
        R(connect(fd, (void *)&to, sizeof to));
        meet();
        close(fd);
        fd = fresh(0);
        R(connect(fd, (void *)&nobody, sizeof nobody));
        close(fd);
        fd = fresh(SOCK_NONBLOCK);
        R(connect(fd, (void *)&nobody, sizeof nobody));
        await_events(fd, POLLERR);
        R(events_now(fd, ALL_EVENTS));
        R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
        R(error);
        R(recv(fd, &error, 1, 0));
        R(send(fd, &error, 1, MSG_NOSIGNAL));
        close(fd);
    }
}

static int select_now(int fd) {
    fd_set read, write, other;
    FD_ZERO(&read);
    FD_ZERO(&write);
    FD_ZERO(&other);
    FD_SET(fd, &read);
    FD_SET(fd, &write);
    FD_SET(fd, &other);
    struct timeval now = {0};
    int count = select(fd + 1, &read, &write, &other, &now);
    return count * 1000 + FD_ISSET(fd, &read) * 100 + FD_ISSET(fd, &write) * 10 + FD_ISSET(fd, &other);
}

/* Waits for an event of a set: its events. */
static int next(int set, int limit) {
    struct epoll_event events[4];
    int count = epoll_wait(set, events, 4, limit);
    if (count <= 0)
        return count;
    int all = 0;
    for (int at = 0; at < count; at++)
        all |= events[at].events;
    return all;
}

static void waits(void) {
    int fd = joined();
    char bytes[16];
    if (is_server) {
        int both[2];
        need(pipe(both) == 0, "pipe");
        int set = epoll_create1(0);
        struct epoll_event level = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP, .data.u64 = 7};
        struct epoll_event of_pipe = {.events = EPOLLIN, .data.u64 = 8};
        R(events_now(fd, ALL_EVENTS));
        R(select_now(fd));
        R(epoll_ctl(set, EPOLL_CTL_ADD, fd, &level));
        R(epoll_ctl(set, EPOLL_CTL_ADD, fd, &level));
        R(epoll_ctl(set, EPOLL_CTL_ADD, both[0], &of_pipe));
        R(next(set, 0));
        meet();
        unread(fd, 4);
        R(events_now(fd, ALL_EVENTS));
        R(select_now(fd));
        R(next(set, 1000));
        R(next(set, 1000));
        R(recv(fd, bytes, 2, 0));
        R(next(set, 1000));
        R(recv(fd, bytes, 2, 0));
        R(next(set, 1000));
        level.events = EPOLLIN;
        R(epoll_ctl(set, EPOLL_CTL_MOD, fd, &level));
        R(next(set, 0));
        R(write(both[1], "x", 1));
        R(next(set, 1000));
        struct pollfd two[2] = {{.fd = fd, .events = POLLIN}, {.fd = both[0], .events = POLLIN}};
        R(poll(two, 2, 1000));
        R(two[0].revents);
        R(two[1].revents);
        R(read(both[0], bytes, 1));
        R(poll(two, 2, 10));
        meet();
        R(poll(two, 2, 10000));
        R(two[0].revents);
        R(next(set, 10000));
        R(recv(fd, bytes, 16, 0));
        R(next(set, 0));
        meet();
        await_events(fd, POLLRDHUP);
        R(events_now(fd, ALL_EVENTS));
        level.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
        R(epoll_ctl(set, EPOLL_CTL_MOD, fd, &level));
        R(next(set, 1000));
        R(select_now(fd));
        R(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
        R(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
        R(next(set, 0));
        R(close(set));
        R(close(both[0]) + close(both[1]));
        meet();
    } else {
        meet();
        R(send(fd, "data", 4, 0));
        meet();
        R(send(fd, "more", 4, 0));
        meet();
        R(shutdown(fd, SHUT_WR));
        meet();
    }
    close(fd);
}

static void edges(void) {
    int fd = joined();
    char bytes[16];
    if (is_server) {
        int set = epoll_create1(0);
        struct epoll_event edge = {.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP};
        R(fcntl(fd, F_SETFL, O_NONBLOCK));
        R(epoll_ctl(set, EPOLL_CTL_ADD, fd, &edge));
        R(next(set, 1000));
        R(next(set, 0));
        meet();
        R(next(set, 10000) & EPOLLIN);
        R(next(set, 0));
        R(recv(fd, bytes, 1, 0));
        R(next(set, 0));
        meet();
        R(next(set, 10000) & EPOLLIN);
        unread(fd, 7);
        R(recv(fd, bytes, 16, 0));
        R(recv(fd, bytes, 16, 0));
        meet();
        R(next(set, 10000) & EPOLLIN);
        R(recv(fd, bytes, 16, 0));
        edge.events = EPOLLIN | EPOLLONESHOT;
        R(epoll_ctl(set, EPOLL_CTL_MOD, fd, &edge));
        meet();
        R(next(set, 10000));
        R(next(set, 0));
        R(epoll_ctl(set, EPOLL_CTL_MOD, fd, &edge));
        R(next(set, 1000));
        close(set);
        meet();
    } else {
        meet();
        R(send(fd, "data", 4, 0));
        meet();
        R(send(fd, "more", 4, 0));
        meet();
        R(send(fd, "last", 4, 0));
        meet();
        R(send(fd, "once", 4, 0));
        meet();
    }
    close(fd);
}

static void early_sets(void) {
    meet();
    if (is_server) {
        int fd = accept(listener, NULL, NULL);
        R(send(fd, "data", 4, 0));
        meet();
        close(fd);
    } else {
        /* As libraries do that put every socket into their set when they make it. */
        struct sockaddr_in to = address(PORT);
        int fd = fresh(SOCK_NONBLOCK), set = epoll_create1(0);
        struct epoll_event edge = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
        R(epoll_ctl(set, EPOLL_CTL_ADD, fd, &edge));
        R(next(set, 0));
        R(connect(fd, (void *)&to, sizeof to));
        R(next(set, 10000) & EPOLLOUT);
        readable(fd);
        meet();
        close(fd);
        R(next(set, 0));
        close(set);
    }
}

static void copies(void) {
    int fd = joined();
    char bytes[16] = {0};
    if (is_server) {
        int copy = R(dup(fd) >= 0) ? dup(fd) : -1;
        R(close(fd));
        R(recv(fd, bytes, 4, 0));
        R(recv(copy, bytes, 4, MSG_WAITALL));
        R(dup2(copy, 200));
        R(dup2(copy, copy) == copy);
        R(fcntl(copy, F_DUPFD_CLOEXEC, 210));
        R(close(copy));
        R(send(210, "back", 4, 0));
        R(fcntl(200, F_SETFL, O_NONBLOCK));
        R(recv(210, bytes, 4, 0));
        R(close(200));
        R(close(210));
        /* One copy of the first call is left. */
        for (int number = 3; number < 64; number++)
            if (number != listener && number != meeting)
                close(number);
        meet();
    } else {
        R(send(fd, "data", 4, 0));
        R(recv(fd, bytes, 4, MSG_WAITALL));
        R(recv(fd, bytes, 4, 0));
        meet();
        close(fd);
    }
}

static void files(void) {
    int fd = joined();
    static char bytes[300000], expected[300000];
    for (unsigned at = 0; at < sizeof expected; at++)
        expected[at] = (char)(at * 31 >> 3);
    if (is_server) {
        FILE *file = tmpfile();
        need(fwrite(expected, sizeof expected, 1, file) == 1, "fwrite");
        fflush(file);
        off_t offset = 100000;
        R(sendfile(fd, fileno(file), &offset, 200000));
        R(offset);
        R(lseek(fileno(file), 0, SEEK_SET));
        R(sendfile(fd, fileno(file), NULL, 1000));
        R(lseek(fileno(file), 0, SEEK_CUR));
        int both[2];
        need(pipe(both) == 0, "pipe");
        R(write(both[1], "piped", 5));
        R(splice(both[0], NULL, fd, NULL, 5, 0));
        R(splice(both[0], NULL, fd, NULL, 5, SPLICE_F_NONBLOCK));
        R(splice(fd, NULL, both[1], NULL, 100, 0));
        R(read(both[0], bytes, 100));
        R(memcmp(bytes, "spliced", 7));
        fclose(file);
        R(lseek(fd, 0, SEEK_SET));
        R(pread(fd, bytes, 1, 0));
        struct stat status;
        R(fstat(fd, &status));
        R(S_ISSOCK(status.st_mode));
        close(both[0]);
        close(both[1]);
        meet();
    } else {
        R(recv(fd, bytes, 200000, MSG_WAITALL));
        R(memcmp(bytes, expected + 100000, 200000));
        R(recv(fd, bytes, 1000, MSG_WAITALL));
        R(memcmp(bytes, expected, 1000));
        R(recv(fd, bytes, 5, MSG_WAITALL));
        R(memcmp(bytes, "piped", 5));
        R(send(fd, "spliced", 7, 0));
        meet();
    }
    close(fd);
}

static void vectors(void) {
    int fd = joined();
    char first[4] = {0}, second[8] = {0};
    struct iovec parts[2] = {{first, 4}, {second, 8}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    struct mmsghdr two[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1}}};
    if (is_server) {
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        R(recvfrom(fd, first, 4, MSG_WAITALL, (void *)&from, &len));
        R(len);
        unread(fd, 8);
        R(readv(fd, parts, 2));
        R(memcmp(first, "4567", 4));
        R(memcmp(second, "89ab", 4));
        meet();
        unread(fd, 12);
        char control[64];
        message.msg_name = &from;
        message.msg_namelen = sizeof from;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        R(recvmsg(fd, &message, 0));
        R(message.msg_namelen);
        R(message.msg_controllen);
        R(message.msg_flags);
        meet();
        unread(fd, 12);
        R(recvmmsg(fd, two, 2, 0, NULL));
        R(two[0].msg_len);
        R(two[1].msg_len);
        volatile int too_few = -1, too_many = 2000;
        R(readv(fd, parts, too_few));
        R(readv(fd, parts, too_many));
        meet();
    } else {
        memcpy(first, "0123", 4);
        memcpy(second, "456789ab", 8);
        R(writev(fd, parts, 2));
        meet();
        R(sendmsg(fd, &message, 0));
        meet();
        R(sendmmsg(fd, two, 2, 0));
        R(two[0].msg_len);
        R(two[1].msg_len);
        R(send(fd, NULL, 4, 0));
        meet();
    }
    close(fd);
}

static void streams(void) {
    int fd = joined();
    if (is_server) {
        FILE *in = fdopen(dup(fd), "r"), *out = fdopen(fd, "w");
        char line[100] = {0};
        R(fgets(line, sizeof line, in) == line);
        R(strcmp(line, "a line\n"));
        R(fgets(line, sizeof line, in) == line);
        R(strcmp(line, "another\n"));
        R(fprintf(out, "%d answers\n", 2));
        R(fflush(out));
        R(fileno(out) == fd);
        R(fclose(in));
        R(fclose(out));
        meet();
    } else {
        char bytes[100] = {0};
        R(send(fd, "a line\nanother\n", 15, 0));
        R(recv(fd, bytes, 10, MSG_WAITALL));
        R(strcmp(bytes, "2 answers\n"));
        R(recv(fd, bytes, 10, 0));
        meet();
        close(fd);
    }
}

static void forks(void) {
    int fd = joined();
    char bytes[16] = {0};
    if (is_server) {
        pid_t child = fork();
        if (child == 0) {
            need(recv(fd, bytes, 4, MSG_WAITALL) == 4, "recv in a child");
            need(send(fd, "child", 5, 0) == 5, "send in a child");
            _exit(0);
        }
        R(close(fd));
        int status = -1;
        waitpid(child, &status, 0);
        R(status);
        /* The parent goes on with another connection, which its child leaves alone. */
        meet();
        fd = accept(listener, NULL, NULL);
        child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, &status, 0);
        R(status);
        R(recv(fd, bytes, 4, MSG_WAITALL));
        R(send(fd, "parent", 6, 0));
        meet();
        R(close(fd));
    } else {
        R(send(fd, "data", 4, 0));
        R(recv(fd, bytes, 16, MSG_WAITALL));
        close(fd);
        meet();
        struct sockaddr_in to = address(PORT);
        fd = fresh(0);
        R(connect(fd, (void *)&to, sizeof to));
        R(send(fd, "data", 4, 0));
        R(recv(fd, bytes, 6, MSG_WAITALL));
        meet();
        R(recv(fd, bytes, 6, 0));
        close(fd);
    }
}

/* A child has the connection as its input and output, as programs have that an inetd starts, and this process waits for it. */
static void serve_by_child(int fd, void (*run)(void)) {
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        close(fd);
        run();
        exit(1);
    }
    R(close(fd));
    int status = -1;
    waitpid(child, &status, 0);
    R(status);
    meet();
}

static void become_cat(void) {
    execlp("cat", "cat", NULL);
    execvp("cat", (char *[]){"cat", NULL});
    _exit(1);
}

static void execs(void) {
    int fd = joined();
    char bytes[16] = {0};
    if (is_server) {
        serve_by_child(fd, become_cat);
    } else {
        R(send(fd, "through cat", 11, 0));
        R(recv(fd, bytes, 11, MSG_WAITALL));
        R(memcmp(bytes, "through cat", 11));
        R(shutdown(fd, SHUT_WR));
        R(recv(fd, bytes, 11, 0));
        meet();
        close(fd);
    }
}

static void passes(void) {
    int fd = joined();
    char bytes[16] = {0};
    if (is_server) {
        int pair[2];
        need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
        pid_t child = fork();
        char space[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {bytes, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
        if (child == 0) {
            close(fd);
            need(recvmsg(pair[1], &message, 0) == 1, "recvmsg");
            int passed;
            memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
            need(recv(passed, bytes, 4, MSG_WAITALL) == 4, "recv from what was passed");
            need(send(passed, "passed", 6, 0) == 6, "send to what was passed");
            _exit(0);
        }
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        R(sendmsg(pair[0], &message, 0));
        R(close(fd));
        int status = -1;
        waitpid(child, &status, 0);
        R(status);
        close(pair[0]);
        close(pair[1]);
        meet();
    } else {
        R(send(fd, "data", 4, 0));
        R(recv(fd, bytes, 6, MSG_WAITALL));
        R(memcmp(bytes, "passed", 6));
        R(recv(fd, bytes, 6, 0));
        meet();
        close(fd);
    }
}

static void on_alarm(int signal) {
    (void)signal;
}

static void interruptions(void) {
    int fd = joined();
    char bytes[16];
    if (is_server) {
        struct sigaction action = {.sa_handler = on_alarm};
        struct itimerval soon = {.it_value.tv_usec = 50000};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &soon, NULL);
        R(recv(fd, bytes, 1, 0));
        setitimer(ITIMER_REAL, &soon, NULL);
        struct pollfd one = {.fd = fd, .events = POLLIN};
        R(poll(&one, 1, -1));
        action.sa_flags = SA_RESTART;
        sigaction(SIGALRM, &action, NULL);
        soon.it_interval.tv_usec = 50000;
        setitimer(ITIMER_REAL, &soon, NULL);
        meet();
        R(recv(fd, bytes, 4, MSG_WAITALL));
        soon = (struct itimerval){0};
        setitimer(ITIMER_REAL, &soon, NULL);
        signal(SIGALRM, SIG_DFL);
    } else {
        meet();
        usleep(200000);
        R(send(fd, "data", 4, 0));
        R(recv(fd, bytes, 1, 0));
    }
    close(fd);
}

static void signals_of_news(void) {
    int fd = joined();
    char bytes[16];
    if (is_server) {
        sigset_t news;
        sigemptyset(&news);
        sigaddset(&news, SIGIO);
        sigprocmask(SIG_BLOCK, &news, NULL);
        R(fcntl(fd, F_SETOWN, getpid()));
        R(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC));
        R((fcntl(fd, F_GETFL) & O_ASYNC) != 0);
        meet();
        R(sigtimedwait(&news, NULL, &(struct timespec){.tv_sec = 10}) == SIGIO);
        R(recv(fd, bytes, 4, 0));
        R(fcntl(fd, F_SETFL, 0));
        signal(SIGIO, SIG_IGN);
        sigprocmask(SIG_UNBLOCK, &news, NULL);
        signal(SIGIO, SIG_DFL);
        meet();
    } else {
        meet();
        R(send(fd, "data", 4, 0));
        meet();
    }
    close(fd);
}

static void echo_lines(void) {
    char line[100];
    clearerr(stdin);
    while (fgets(line, sizeof line, stdin)) {
        printf("heard %s", line);
        fflush(stdout);
    }
    exit(0);
}

static void standard_streams(void) {
    int fd = joined();
    if (is_server) {
        serve_by_child(fd, echo_lines);
    } else {
        char bytes[100] = {0};
        R(send(fd, "a line\n", 7, 0));
        R(recv(fd, bytes, 13, MSG_WAITALL));
        R(memcmp(bytes, "heard a line\n", 13));
        R(shutdown(fd, SHUT_WR));
        R(recv(fd, bytes, 1, 0));
        meet();
        close(fd);
    }
}

static int shared_fd;
static void *closer(void *nothing) {
    (void)nothing;
    usleep(50000);
    close(shared_fd);
    meet();
    return NULL;
}

static void other_thread(void) {
    int fd = joined();
    char bytes[16];
    if (is_server) {
        pthread_t thread;
        shared_fd = fd;
        need(pthread_create(&thread, NULL, closer, NULL) == 0, "pthread_create");
        R(recv(fd, bytes, 4, MSG_WAITALL));
        pthread_join(thread, NULL);
        R(recv(fd, bytes, 4, 0));
    } else {
        meet();
        R(send(fd, "data", 4, 0));
        R(recv(fd, bytes, 1, 0));
        close(fd);
    }
}

static void half_closed(void) {
    int fd = joined();
    static char bytes[200000];
    if (is_server) {
        R(recv(fd, bytes, 10, 0));
        R(send(fd, bytes, sizeof bytes, 0));
        R(close(fd));
        meet();
    } else {
        R(shutdown(fd, SHUT_WR));
        R(recv(fd, bytes, sizeof bytes, MSG_WAITALL));
        R(recv(fd, bytes, sizeof bytes, 0));
        meet();
        R(close(fd));
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} scripts[] = {
    {"echo", echo},           {"flags", flags},         {"nonblocking", nonblocking}, {"shutdowns", shutdowns},
    {"peer_closes", peer_closes}, {"resets", resets},   {"unread_close", unread_close}, {"requests", requests},
    {"options", options},     {"names", names},         {"connects", connects},       {"waits", waits},
    {"edges", edges},         {"early_sets", early_sets}, {"copies", copies},         {"files", files},
    {"vectors", vectors},     {"streams", streams},     {"forks", forks},             {"execs", execs},
    {"shut_both", shut_both}, {"signals_of_news", signals_of_news}, {"standard_streams", standard_streams},
    {"passes", passes},       {"interruptions", interruptions}, {"other_thread", other_thread}, {"half_closed", half_closed},
};

int main(int count, char **arguments) {
    if (count < 4 || inet_aton(arguments[2], &own) == 0 || inet_aton(arguments[3], &peer) == 0)
        return 2;
    is_server = strcmp(arguments[1], "server") == 0;
    signal(SIGPIPE, SIG_IGN);
    meeting = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(MEETING), .sin_addr = own};
    need(bind(meeting, (void *)&at, sizeof at) == 0, "bind");
    if (is_server) {
        listener = fresh(0);
        at.sin_port = htons(PORT);
        need(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0, "SO_REUSEADDR");
        need(bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 8) == 0, "listen");
    }
    for (unsigned script = 0; script < sizeof scripts / sizeof *scripts; script++) {
        name = scripts[script].name;
        if (count > 4 && strcmp(arguments[4], name) != 0)
            continue;
        scripts[script].run();
    }
    meet();
    return 0;
}
