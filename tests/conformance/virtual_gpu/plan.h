// What is planted: times, noise, drift, clock steps and faults of kernels, by environment variables.
//
//   VGPU_TIMES=FILE   lines "<us> <words>": the first line all of whose words fit a launch gives its time; others get one
//                     that follows from the kernel's name
//   VGPU_NOISE=SD     each time is multiplied by 1 + SD times a standard normal, seeded by VGPU_SEED (default 1)
//   VGPU_DRIFT=SHARE  times grow by this share per second in kernels
//   VGPU_STEPS=LIST   "<us>:<factor>;...": from this time in kernels on, times are multiplied by the factor
//   VGPU_WRONG, VGPU_HANG, VGPU_CRASH   words of kernels, several separated by ';', that compute wrong values, never
//                     end, or abort the process
//
// A word fits if it is part of the kernel's name, or, where it contains '=', one of its sizes ("gsu=4", "m=96").
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace vgpu {

struct Launch {
    std::string name;
    std::string sizes;  // " gsu=1 m=96 n=64 k=128 batch=1 ", or empty
};

inline std::string setting(const char* name, const char* otherwise = "") {
    const char* value = std::getenv(name);
    return value ? value : otherwise;
}
inline double number(const char* name, double otherwise) {
    const std::string text = setting(name);
    return text.empty() ? otherwise : std::atof(text.c_str());
}

class Words {
  public:
    explicit Words(const std::string& text) {
        std::istringstream in(text);
        for (std::string word; in >> word;) words_.push_back(word);
    }
    bool fit(const Launch& launch) const {
        return !words_.empty() && std::all_of(words_.begin(), words_.end(), [&](const std::string& word) {
            const bool size = word.find('=') != std::string::npos;
            return (size ? launch.sizes.find(" " + word + " ") : launch.name.find(word)) != std::string::npos;
        });
    }

  private:
    std::vector<std::string> words_;
};

inline std::vector<std::string> parts(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> all;
    for (std::string part; std::getline(in, part, ';');) all.push_back(part);
    return all;
}

class Kernels {  // those that a variable names
  public:
    explicit Kernels(const char* variable) {
        for (const std::string& part : parts(setting(variable))) all_.emplace_back(part);
    }
    bool contain(const Launch& launch) const {
        return std::any_of(all_.begin(), all_.end(), [&](const Words& words) { return words.fit(launch); });
    }

  private:
    std::vector<Words> all_;
};

class Times {
  public:
    Times() : noise_(number("VGPU_NOISE", 0)), drift_(number("VGPU_DRIFT", 0)), state_(uint64_t(number("VGPU_SEED", 1))) {
        const std::string path = setting("VGPU_TIMES");
        std::ifstream in(path);
        if (!path.empty() && !in) {
            std::fprintf(stderr, "virtual GPU: VGPU_TIMES=%s cannot be read\n", path.c_str());
            std::_Exit(3);
        }
        for (std::string line; std::getline(in, line);) {
            char* rest = nullptr;
            const double us = std::strtod(line.c_str(), &rest);
            if (rest != line.c_str()) planted_.emplace_back(Words(rest), us);
        }
        for (const std::string& part : parts(setting("VGPU_STEPS"))) {
            double at = 0, factor = 1;
            if (std::sscanf(part.c_str(), "%lf:%lf", &at, &factor) == 2) steps_.emplace_back(at, factor);
        }
    }
    double us(const Launch& launch, double busy_us) {
        double us = undisturbed_us(launch) * (1 + drift_ * busy_us * 1e-6);
        for (const auto& [at, factor] : steps_)
            if (busy_us >= at) us *= factor;
        if (noise_ > 0) us *= std::max(0.05, 1 + noise_ * normal());
        return us;
    }

  private:
    double undisturbed_us(const Launch& launch) const {
        for (const auto& [words, us] : planted_)
            if (words.fit(launch)) return us;
        uint32_t hash = 2166136261u;  // FNV-1a
        for (const unsigned char c : launch.name) hash = (hash ^ c) * 16777619u;
        return 20 + hash % 80000 / 1000.0;
    }
    double uniform() {  // in (0, 1], splitmix64
        uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return double(((z ^ z >> 31) >> 11) + 1) / double(1ull << 53);
    }
    double normal() {  // Box and Muller
        const double radius = std::sqrt(-2 * std::log(uniform()));
        return radius * std::cos(6.283185307179586 * uniform());
    }

    std::vector<std::pair<Words, double>> planted_;
    std::vector<std::pair<double, double>> steps_;
    double noise_, drift_;
    uint64_t state_;
};

}  // namespace vgpu
