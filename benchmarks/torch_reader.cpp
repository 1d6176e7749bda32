// What PyTorch's own code takes of TunableOp results files: built and asked by torch_reader.py.
//
// Arguments: the running validators, as "NAME=VALUE".  Standard input: a path per line.  Standard output: one line
// per file: accepted or rejected, then its rows, each as op, params, solution and time (ms), all separated by the byte
// 0x1f.  No GPU is needed: the validators, which would ask the device, are those of the arguments.
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#define private public  // a context's validators and results have no other way in and out without a device
#include <ATen/cuda/tunable/Tunable.h>

using namespace at::cuda::tunable;

int main(int count, char** arguments) {
    for (std::string path; std::getline(std::cin, path);) {
        TuningContext context;
        auto& validators = context.validator_.validators_;
        validators.clear();
        for (int i = 1; i < count; i++) {
            const std::string text = arguments[i], value = text.substr(text.find('=') + 1);
            const auto same = [value](const std::string& given) { return given == value ? OK : FAIL; };
            validators[text.substr(0, text.find('='))] = {[value] { return value; }, same};
        }
        const bool accepted = context.ReadFile(path);
        std::printf("%s", accepted ? "accepted" : "rejected");
        for (const auto& [op, rows] : context.manager_.results_)
            for (const auto& [params, entry] : rows)
                std::printf("\x1f%s\x1f%s\x1f%s\x1f%.9g", op.c_str(), params.c_str(), entry.key_.c_str(), entry.time_);
        std::printf("\n");
        std::fflush(stdout);
    }
    std::_Exit(0);
}
