/* What the kernel lets pass over loopback: threads that do nothing but write and read 1 MiB, and wake up for as much.
 *
 *   limit UP DOWN SECONDS      so many streams each way
 *
 * Prints Gbit/s, and processor time of the senders, of the readers and of both in seconds by 10^9 bytes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, MOST = 64 };
static volatile int over;
static struct side { pthread_t thread; int socket; long bytes; double cpu; } senders[MOST], readers[MOST];

static void *work(struct side *side, ssize_t (*pass)(int, void *, size_t)) {
    void *block = mmap(0, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    struct rusage used;
    for (long n; !over && (n = pass(side->socket, block, BLOCK)) > 0; side->bytes += n);
    /* Its peer waits no longer. */
    shutdown(side->socket, SHUT_RDWR);
    getrusage(RUSAGE_THREAD, &used);
    side->cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    return 0;
}
static void *sends(void *side) { return work(side, (ssize_t (*)(int, void *, size_t))write); }
static void *reads(void *side) { return work(side, read); }

int main(int count, char **args) {
    if (count != 4) return fputs("usage: limit UP DOWN SECONDS\n", stderr), 2;
    int up = atoi(args[1]), all = up + atoi(args[2]), block = BLOCK, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof here;
    if (all < 1 || all > MOST || bind(listener, (void *)&here, size) || listen(listener, MOST)) return 1;
    getsockname(listener, (void *)&here, &size);
    for (int n = 0; n < all; n++) {
        int near = socket(AF_INET, SOCK_STREAM, 0), far = connect(near, (void *)&here, size) ? -1 : accept(listener, 0, 0);
        if (far < 0) return perror("limit"), 1;
        senders[n].socket = n < up ? near : far;
        readers[n].socket = n < up ? far : near;
        setsockopt(readers[n].socket, SOL_SOCKET, SO_RCVLOWAT, &block, sizeof block);
    }
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int n = 0; n < all; n++) {
        pthread_create(&readers[n].thread, 0, reads, &readers[n]);
        pthread_create(&senders[n].thread, 0, sends, &senders[n]);
    }
    usleep(atof(args[3]) * 1e6);
    over = 1;
    double gb = 0, cpu[2] = {0};
    for (int n = 0; n < all; n++) {
        pthread_join(senders[n].thread, 0);
        pthread_join(readers[n].thread, 0);
        gb += readers[n].bytes / 1e9, cpu[0] += senders[n].cpu, cpu[1] += readers[n].cpu;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds = ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) / 1e9;
    printf("%f\t%f\t%f\t%f\n", gb * 8 / seconds, cpu[0] / gb, cpu[1] / gb, (cpu[0] + cpu[1]) / gb);
}
