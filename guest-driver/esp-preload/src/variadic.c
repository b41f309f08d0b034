/* Functions with any number of arguments, which Rust cannot define. They lead to those that take a list. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern char **environ;

/* Collects arguments up to the null; more than a program can have are cut off. */
#define COLLECT(list, first, rest)                                                                                                \
    int count = 1;                                                                                                                \
    va_start(rest, first);                                                                                                        \
    while (va_arg(rest, char *))                                                                                                  \
        count++;                                                                                                                  \
    va_end(rest);                                                                                                                 \
    char *list[count + 1];                                                                                                        \
    va_start(rest, first);                                                                                                        \
    list[0] = (char *)first;                                                                                                      \
    for (int at = 1; at <= count; at++)                                                                                           \
    list[at] = va_arg(rest, char *)

int execl(const char *path, const char *first, ...) {
    va_list rest;
    COLLECT(list, first, rest);
    va_end(rest);
    return execve(path, list, environ);
}

int execle(const char *path, const char *first, ...) {
    va_list rest;
    COLLECT(list, first, rest);
    char **environment = va_arg(rest, char **);
    va_end(rest);
    return execve(path, list, environment);
}

int execlp(const char *file, const char *first, ...) {
    va_list rest;
    COLLECT(list, first, rest);
    va_end(rest);
    return execvp(file, list);
}

/* Writes the whole of a text to a descriptor. */
int vdprintf(int fd, const char *format, va_list arguments) {
    char *text;
    int len = vasprintf(&text, format, arguments);
    if (len < 0)
        return len;
    int done = 0;
    while (done < len) {
        ssize_t now = write(fd, text + done, len - done);
        if (now < 0) {
            done = -1;
            break;
        }
        done += now;
    }
    free(text);
    return done;
}

int dprintf(int fd, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int done = vdprintf(fd, format, arguments);
    va_end(arguments);
    return done;
}
