/* What a C program sees: misuse is refused with codes, no GPU is a code, sums on the host executor are right. */
#include "topoforge.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                         \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            printf("%s:%d: %s fails; last error: %s\n", __FILE__, __LINE__, #condition, tf_last_error()); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

enum { COUNT = 3000 };

typedef struct {
    TfComm *comm;
    uint16_t values[COUNT];
    uint16_t sums[COUNT];
} Rank;

static void *work(void *argument) {
    Rank *rank = argument;
    /* 1.0 in place of every value, out of place, then in place. */
    for (int i = 0; i < COUNT; i++) rank->values[i] = 0x3c00;
    EXPECT(tf_all_reduce(rank->comm, rank->values, rank->sums, COUNT, TF_F16, TF_SUM, NULL) == TF_OK);
    EXPECT(tf_all_reduce(rank->comm, rank->sums, rank->sums, COUNT, TF_F16, TF_SUM, NULL) == TF_OK);
    for (int i = 0; i < COUNT; i++) {
        EXPECT(rank->values[i] == 0x3c00);
        EXPECT(rank->sums[i] == 0x4400); /* 4.0 */
    }
    EXPECT(tf_check(rank->comm) == TF_OK);
    return NULL;
}

static void host(void) {
    TfComm *comms[2] = {NULL, NULL};
    EXPECT(tf_comm_init_host("nvlink-pear", 2, comms) == TF_REFUSED);
    EXPECT(strstr(tf_last_error(), "nvlink-pear"));
    EXPECT(tf_comm_init_host("nvlink-pair", 3, comms) == TF_INVALID);
    EXPECT(comms[0] == NULL);
    EXPECT(tf_comm_init_host("nvlink-pair", 2, comms) == TF_OK);
    static Rank ranks[2];
    pthread_t threads[2];
    for (int r = 0; r < 2; r++) {
        ranks[r].comm = comms[r];
        EXPECT(pthread_create(&threads[r], NULL, work, &ranks[r]) == 0);
    }
    for (int r = 0; r < 2; r++) EXPECT(pthread_join(threads[r], NULL) == 0);

    int rank = -1, world = -1;
    EXPECT(tf_comm_rank(comms[1], &rank, &world) == TF_OK && rank == 1 && world == 2);
    EXPECT(tf_comm_rank(comms[1], NULL, NULL) == TF_OK);
    size_t needed = 0;
    EXPECT(tf_explain(comms[0], NULL, 0, &needed) == TF_OK && needed > 20);
    char *text = malloc(needed);
    EXPECT(tf_explain(comms[0], text, needed, NULL) == TF_OK && strlen(text) == needed - 1);
    EXPECT(strstr(text, "nvlink-pair"));
    char cut[8];
    EXPECT(tf_explain(comms[0], cut, sizeof cut, NULL) == TF_OK && strlen(cut) == 7);
    free(text);

    _Alignas(16) uint16_t word[8] = {0};
    EXPECT(tf_all_reduce(comms[0], word, word, 0, TF_F16, TF_SUM, NULL) == TF_OK);
    EXPECT(tf_all_reduce(comms[0], NULL, word, 8, TF_F16, TF_SUM, NULL) == TF_INVALID);
    EXPECT(tf_all_reduce(comms[0], word, NULL, 8, TF_F16, TF_SUM, NULL) == TF_INVALID);
    EXPECT(tf_all_reduce(comms[0], (char *)word + 1, word, 4, TF_F16, TF_SUM, NULL) == TF_INVALID);
    EXPECT(tf_all_reduce(comms[0], word, word, 8, 77, TF_SUM, NULL) == TF_INVALID);
    EXPECT(tf_all_reduce(comms[0], word, word, 8, TF_F16, -1, NULL) == TF_INVALID);
    EXPECT(tf_all_reduce(comms[0], word, word, (size_t)-1, TF_F16, TF_SUM, NULL) == TF_INVALID);
    EXPECT(tf_all_reduce(comms[0], word, word, 8, TF_F16, TF_MAX, NULL) == TF_INVALID);
    EXPECT(tf_all_reduce(comms[0], word, word, 2, TF_I64, TF_SUM, NULL) == TF_UNAVAILABLE);

    EXPECT(tf_comm_destroy(comms[0]) == TF_OK);
    EXPECT(tf_comm_destroy(comms[0]) == TF_INVALID);
    EXPECT(strstr(tf_last_error(), "destroyed"));
    EXPECT(tf_check(comms[0]) == TF_INVALID);
    EXPECT(tf_comm_destroy(comms[1]) == TF_OK);
}

int main(int count, char **arguments) {
    EXPECT(strlen(tf_version()) >= 5);
    EXPECT(tf_check(NULL) == TF_INVALID && strlen(tf_last_error()) > 0);
    EXPECT(tf_comm_destroy(NULL) == TF_OK);
    uint64_t garbage[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT(tf_check((TfComm *)garbage) == TF_INVALID);
    EXPECT(tf_check((TfComm *)((char *)garbage + 1)) == TF_INVALID);
    TfComm *comms[2] = {NULL, NULL};
    int devices[2] = {0, 1};
    EXPECT(tf_comm_init_devices(0, devices, comms) == TF_INVALID);
    EXPECT(tf_comm_init_devices(2, NULL, comms) == TF_INVALID);
    EXPECT(tf_comm_init_devices(100000, devices, comms) == TF_INVALID);
    uint8_t id[128] = {0}, other[128] = {0};
    EXPECT(tf_id_new(NULL) == TF_INVALID && tf_id_new(id) == TF_OK && tf_id_new(other) == TF_OK);
    EXPECT(memcmp(id, other, 128) != 0);
    EXPECT(tf_comm_init(id, 2, 2, 0, comms) == TF_INVALID);
    EXPECT(tf_comm_init(id, -1, 2, 0, comms) == TF_INVALID);
    EXPECT(tf_comm_init(NULL, 0, 2, 0, comms) == TF_INVALID);
    EXPECT(tf_comm_init(id, 0, 2, 0, NULL) == TF_INVALID);
    memset(other, 7, sizeof other);
    EXPECT(tf_comm_init(other, 0, 2, 0, comms) == TF_INVALID);
    EXPECT(tf_comm_init_torchrun(0, NULL) == TF_INVALID);
    unsetenv("RANK");
    EXPECT(tf_comm_init_torchrun(0, comms) != TF_OK && strstr(tf_last_error(), "RANK"));
    if (count > 1 && strcmp(arguments[1], "no-gpu") == 0) {
        EXPECT(tf_comm_init_devices(2, devices, comms) == TF_UNAVAILABLE);
        EXPECT(comms[0] == NULL && strlen(tf_last_error()) > 20);
        EXPECT(tf_comm_init(id, 0, 2, 0, comms) == TF_UNAVAILABLE);
        EXPECT(tf_comm_init(id, 0, 2, -5, comms) == TF_UNAVAILABLE);
        printf("without a GPU: %s\n", tf_last_error());
    }
    host();
    printf("all as it should be\n");
    return 0;
}
