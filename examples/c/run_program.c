/* Runs a frozen program from C: no Python, no third-party library.
 *
 *   python examples/c/freeze_model.py model.pet
 *   PACKAGE=$(python -c 'import pyeffect_torch as et; print(et.__path__[0])')
 *   LIBRARIES=$PACKAGE/runtime/native/lib
 *   cc -I$PACKAGE/include examples/c/run_program.c $LIBRARIES/libpet_cpu.so \
 *       -Wl,-rpath,$LIBRARIES -o run_program
 *     (libpet_cpu.dylib on macOS; `python -m ziglang cc` is a C compiler too)
 *   ./run_program model.pet 0.1 0.2 0.3 0.4
 *
 * The program must take one float32 array and return one float32 array; the numbers on the command
 * line are the elements of the input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pyeffect_torch.h"

static void fail(const char *what, uint32_t status, const pet_error_t *error) {
    fprintf(stderr, "%s: status %u", what, status);
    if (error != NULL && error->message[0] != 0) {
        fprintf(stderr, ": %s", (const char *)error->message);
    }
    fprintf(stderr, "\n");
    exit(1);
}

static uint8_t *read_file(const char *path, uint64_t *length) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "cannot open %s\n", path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    long end = ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(end > 0 ? (size_t)end : 1);
    if (bytes == NULL || end < 0 || fread(bytes, 1, (size_t)end, file) != (size_t)end) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    *length = (uint64_t)end;
    return bytes;
}

/* Waits for a job to finish; a real program would look at its own events between the slices. */
static void wait_for(const char *what, uint64_t job) {
    pet_error_t error = {0};
    uint32_t done = 0;
    while (!done) {
        uint32_t status = pet_job_wait(job, 20, &done, &error);
        if (status != PET_STATUS_OK) fail(what, status, &error);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s PROGRAM NUMBER...\n", argv[0]);
        return 2;
    }
    uint64_t length = 0;
    uint8_t *bytes = read_file(argv[1], &length);

    uint64_t runtime = 0, job = 0, executable = 0, input = 0, output = 0;
    uint32_t status = pet_runtime_create(NULL, &runtime);
    if (status != PET_STATUS_OK) fail("runtime", status, NULL);

    status = pet_compile_submit(runtime, bytes, length, NULL, 0, &job);
    if (status != PET_STATUS_OK) fail("compile", status, NULL);
    wait_for("compile", job);
    status = pet_job_result(job, &executable, 1);
    if (status != PET_STATUS_OK) fail("compile", status, NULL);
    pet_job_release(job);
    free(bytes);

    uint64_t count = (uint64_t)(argc - 2);
    uint8_t *data = NULL;
    status = pet_buffer_create(runtime, count * sizeof(float), &input, &data);
    if (status != PET_STATUS_OK) fail("input", status, NULL);
    for (uint64_t i = 0; i < count; i++) {
        float value = strtof(argv[2 + i], NULL);
        memcpy(data + i * sizeof(float), &value, sizeof(float));
    }

    pet_error_t error = {0};
    status = pet_run_submit(executable, &input, 1, &output, 1, 0, &job, &error);
    if (status != PET_STATUS_OK) fail("run", status, &error);
    if (job != 0) {
        wait_for("run", job);
        status = pet_job_result(job, &output, 1);
        if (status != PET_STATUS_OK) fail("run", status, NULL);
        pet_job_release(job);
    }

    uint64_t output_bytes = 0;
    status = pet_buffer_data(output, &data, &output_bytes);
    if (status != PET_STATUS_OK) fail("output", status, NULL);
    for (uint64_t i = 0; i < output_bytes / sizeof(float); i++) {
        float value;
        memcpy(&value, data + i * sizeof(float), sizeof(float));
        printf("%s%.9g", i == 0 ? "" : " ", (double)value);
    }
    printf("\n");

    pet_buffer_release(output);
    pet_buffer_release(input);
    pet_executable_release(executable);
    pet_runtime_destroy(runtime);
    return 0;
}
