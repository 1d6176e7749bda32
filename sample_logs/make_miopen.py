"""Write the sample logs in ``sample_logs/miopen/``. Run it from any folder; the files are always the same.

Nothing of logparse is imported, so that a mistake in logparse's readers cannot be in the samples, too.
``sample_logs/miopen/README.md`` describes each file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "miopen"
BASE, VERSION, TWEAK = "gfx942130", "3_4_0", "7c1e0a9d2"
STEPS = 6
ALGORITHM = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}
CODE = {"GEMM": 0, "Direct": 1, "Winograd": 3, "ImplicitGEMM": 5}
FLAG = {"F": 1, "B": 2, "W": 4}
SUFFIX = {"F": "Fwd", "B": "Bwd", "W": "Wrw"}


@dataclass(frozen=True)
class Layer:
    """A convolution of the sample network (batch 64, FP16, NCHW), and how often it is called in one step."""

    c: int
    size: int
    k: int
    filter: int
    stride: int
    groups: int
    times: int

    @property
    def out(self) -> int:
        return (self.size + 2 * self.pad - self.filter) // self.stride + 1

    @property
    def pad(self) -> int:
        return self.filter // 2

    @property
    def gflop(self) -> float:
        return 2e-9 * 64 * self.k * self.out**2 * (self.c // self.groups) * self.filter**2

    def key(self, direction: str) -> str:
        x, y = (self.c, self.size), (self.k, self.out)
        (c1, s1), (c2, s2) = (x, y) if direction == "F" else (y, x)
        f, p, s = self.filter, self.pad, self.stride
        group = f"_g{self.groups}" if self.groups > 1 else ""
        return f"{c1}-{s1}-{s1}-{f}x{f}-{c2}-{s2}-{s2}-64-{p}x{p}-{s}x{s}-1x1-0-NCHW-FP16-{direction}{group}"

    def driver(self, direction: str) -> str:
        f, p, s = self.filter, self.pad, self.stride
        return (
            f"convfp16 -n 64 -c {self.c} -H {self.size} -W {self.size} -k {self.k} -y {f} -x {f} -p {p} -q {p} "
            f"-u {s} -v {s} -l 1 -j 1 -m conv -g {self.groups} -F {FLAG[direction]} -t 1"
        )

    def perf_key(self, direction: str) -> str:
        c1, s1, c2 = (self.c, self.size, self.k) if direction == "F" else (self.k, self.out, self.c)
        f, p, s = self.filter, self.pad, self.stride
        sizes = (2, c1, s1, s1, 1, f, f, 1, c2, 64, p, p, 0, s, s, 0, 1, 1, 0, 0, self.groups)
        return "x".join(map(str, sizes)) + f"xNCHWxFP16x{direction}"


# The layers of ResNeXt-50 32x4d that differ.
LAYERS = (
    Layer(3, 224, 64, 7, 2, 1, 1),
    Layer(64, 56, 128, 1, 1, 1, 1),
    Layer(128, 56, 128, 3, 1, 32, 3),
    Layer(128, 56, 256, 1, 1, 1, 3),
    Layer(256, 56, 128, 1, 1, 1, 2),
    Layer(256, 56, 256, 3, 2, 32, 1),
    Layer(256, 28, 256, 3, 1, 32, 3),
    Layer(256, 28, 512, 1, 1, 1, 4),
    Layer(512, 28, 256, 1, 1, 1, 3),
    Layer(512, 28, 512, 3, 2, 32, 1),
    Layer(512, 14, 512, 3, 1, 32, 5),
    Layer(512, 14, 1024, 1, 1, 1, 6),
    Layer(1024, 14, 1024, 3, 2, 32, 1),
    Layer(1024, 7, 1024, 3, 1, 32, 2),
    Layer(1024, 7, 2048, 1, 1, 1, 3),
)
GROUPED = tuple(layer for layer in LAYERS if layer.groups > 1)

# (solver with {} for the direction, family, TFLOP/s, least time in ms, workspace bytes per output element)
DENSE = (
    ("ConvAsmImplicitGemmGTCDynamic{}XdlopsNHWC", "ImplicitGEMM", 92.0, 0.021, 4),
    ("Gemm{}1x1", "GEMM", 61.0, 0.026, 2),
    ("ConvBinWinogradRxSf2x3", "Winograd", 23.0, 0.018, 0),
    ("ConvDirectNaiveConv{}", "Direct", 1.9, 0.030, 0),
)
GROUP = (
    ("ConvBinWinogradRxSf3x2", "Winograd", 8.7, 0.019, 0),
    ("ConvBinWinogradRxSf2x3", "Winograd", 7.1, 0.019, 0),
    ("Gemm{}Rest", "GEMM", 0.9, 0.120, 2),
    ("ConvDirectNaiveConv{}", "Direct", 1.2, 0.030, 0),
)
GROUP_W = (
    ("GemmWrwUniversal", "GEMM", 0.45, 0.140, 2),
    ("ConvDirectNaiveConvWrw", "Direct", 0.11, 0.200, 0),
)
CK_WRW = ("ConvHipImplicitGemmGroupWrwXdlops", "ImplicitGEMM", 9.4, 0.020, 0)


def timed(
    layer: Layer, direction: str, offers: tuple[tuple[str, str, float, float, int], ...]
) -> list[tuple[str, str, float, int]]:
    """Return the solvers that MIOpen offers for a layer, the fastest first: (solver, family, time in ms, workspace)."""
    rows = []
    for number, (solver, family, tflops, floor, per_element) in enumerate(offers):
        name = solver.format({"F": "Fwd", "B": "Bwd", "W": "Wrw"}[direction])
        if name.endswith("1x1"):
            name = {"F": "GemmFwd1x1_0_1", "B": "GemmBwd1x1_stride1", "W": "GemmWrw1x1_stride1"}[direction]
        uneven = 0.8 + 0.07 * ((layer.c // 64 + layer.size // 7 + layer.stride) % 7)
        slower = ({"F": 1.0, "B": 1.09, "W": 1.17}[direction] + 0.01 * number) * uneven
        ms = (floor + layer.gflop / tflops) * slower
        workspace = per_element * 64 * layer.k * layer.out**2 // 4
        rows.append((name, family, float(f"{ms:.6g}"), workspace))
    return sorted(rows, key=lambda row: row[2])


def offers_of(layer: Layer, direction: str) -> tuple[tuple[str, str, float, float, int], ...]:
    if layer.groups == 1:
        return DENSE if layer.filter == 1 else tuple(x for x in DENSE if "1x1" not in x[0])
    if direction == "W" and layer.stride == 1 and layer.size <= 14:
        return (*GROUP_W, ("ConvBinWinogradRxSf3x2", "Winograd", 1.3, 0.050, 0))
    return GROUP_W if direction == "W" else GROUP


def algorithm(family: str, direction: str) -> str:
    return f"miopenConvolution{ALGORITHM[direction]}Algo{family}"


def item(row: tuple[str, str, float, int], direction: str) -> str:
    solver, family, ms, workspace = row
    return f"{solver}:{ms:.6g},{workspace},{algorithm(family, direction)}"


def system_find_db() -> str:
    lines = [
        f"{layer.key(d)}=" + ";".join(item(row, d) for row in timed(layer, d, offers_of(layer, d))[:4])
        for layer in LAYERS
        for d in "FBW"
    ]
    return "\n".join(sorted(lines)) + "\n"


def user_find_db() -> str:
    """Return the find-db (file of solver times) that MIOpen writes after it searched solvers for four layers.

    The search was in find mode Normal. The entries have the order of a hash map, so the fastest solver is not the first
    one.
    """
    lines = []
    for layer in (GROUPED[1], GROUPED[0], GROUPED[2], GROUPED[3]):
        rows = timed(layer, "W", (*GROUP_W, CK_WRW))
        lines.append(f"{layer.key('W')}=" + ";".join(item(row, "W") for row in reversed(rows)))
    return "\n".join(lines) + "\n"


def v1_find_db() -> str:
    rows = []
    for layer in LAYERS[2:5]:
        for direction in "FBW":
            items = [
                f"{algorithm(family, direction)}:{solver},{ms * 4:.6g},{workspace},"
                + ("rocBlas" if family == "GEMM" else algorithm(family, direction))
                + (",not used" if family == "Direct" else ",<unused>")
                for solver, family, ms, workspace in timed(layer, direction, offers_of(layer, direction))
            ]
            rows.append(f"{layer.key(direction).replace('FP16', 'FP32')}=" + ";".join(items))
    return "\n".join(sorted(rows)) + "\n"


# ruff: noqa: E501
ODD = """\
16-8-56-56-3x3x3-64-8-56-56-4-1x1x1-1x1x1-1x1x1-0-NCDHW-BF16-W=GemmWrwUniversal:21.4,86704128,miopenConvolutionBwdWeightsAlgoGEMM;ConvDirectNaiveConvWrw:310.2,0,miopenConvolutionBwdWeightsAlgoDirect
64-8-56-56-1x1x1-16-8-56-56-4-0x0x0-1x1x1-1x1x1-0-NCDHW-BF16-F=GemmFwd1x1_0_1:0,0,miopenConvolutionFwdAlgoGEMM;ConvDirectNaiveConvFwd:1.82,0,miopenConvolutionFwdAlgoDirect
64-8-56-56-3x3x3-16-8-56-56-4-1x1x1-1x1x1-1x1x1-0-NDHWC-NDHWC-NDHWC-FP16-B=ConvHipImplicitGemm3DGroupBwdXdlops:0.94,0,miopenConvolutionBwdDataAlgoImplicitGEMM
64-4-14-14-1x1x1-128-4-14-14-4-0x0-1x1x1-1x1x1-0-NCHW-FP32-F=GemmFwd1x1_0_1:3.1,0,miopenConvolutionFwdAlgoGEMM
32-10-10-3x3-64-5-5-19-0x0-2x2-1x1-0-NCHW-FP32-F=ConvOclDirectFwd:0.57,0,miopenConvolutionFwdAlgoDirect
32-1-1-3x3-64-1-1-19-0x0-1x1-1x1-0-NCHW-INT8INT8FP32-F_g4=ConvDirectNaiveConvFwd:0.4,0,miopenConvolutionFwdAlgoDirect
"""
DAMAGED = """\
32-10-10-3x3-64-8-8-19-0x0-1x1-1x1-0-NCHW-FP32-F=GemmFwdRest:0.57,0,miopenConvolutionFwdAlgoGEMM;GemmFwdRest:0.6,0,miopenConvolutionFwdAlgoGEMM
32-10-10-3x3-64-8-8-19-0x0-1x1-1x1-0-NCHW-FP32-F=ConvDirectNaiveConvFwd:0.1,0,miopenConvolutionFwdAlgoDirect
32-10-10-3x3-64-8-8-20-0x0-1x1-1x1-0-NCHW-FP32-F=GemmFwdRest:0.57;ConvDirectNaiveConvFwd
32-10-10-3x3-64-8-8-21-0x0-1x1-1x1-0-NCHW-FP32-F=GemmFwdRest:-0.2,0,miopenConvolutionFwdAlgoGEMM;ConvDirectNaiveConvFwd:nan,0,miopenConvolutionFwdAlgoDirect
32-10-10-3x3-64-8-8-22-0x0-1x1-1x1-0-NCHW-FP32-B=GemmBwdRest:0.3,0,miopenConvolutionFwdAlgoGEMM
32-10-10-3x3-64-8-8-2

no record at all
"""


def training_log() -> str:
    """Return what a training job writes to standard error.

    The first step has a search for a solver for each shape. Each step logs every convolution.
    """
    lines = ["[rank0] model resnext50_32x4d, batch 64, amp fp16, benchmark off"]
    for step in range(STEPS):
        lines.append(f"[rank0] epoch 0 step {step} loss {6.93 - 0.04 * step:.3f}")
        for direction, layers in (("F", LAYERS), ("B", LAYERS[::-1]), ("W", LAYERS[::-1])):
            for layer in layers:
                if layer is LAYERS[0] and direction == "B":
                    continue  # the first layer needs no gradient of its input
                command = f"./bin/MIOpenDriver {layer.driver(direction)}"
                if step == 0:
                    lines.append(f"MIOpen(HIP): Command [LogCmdFindConvolution] {command}")
                lines += [f"MIOpen(HIP): Command [LogCmdConvolution] {command}"] * layer.times
        if step == 0:
            lines.append(
                "MIOpen(HIP): Command [LogCmdBNorm] ./bin/MIOpenDriver bnormfp16 -n 64 -c 64 -H 56 -W 56 -m 1 --forw 1"
            )
    return "\n".join(lines) + "\n"


def find_log() -> str:
    """Return MIOpen's log of a search for the fastest solver of one layer, with MIOPEN_LOG_LEVEL=6."""
    layer = GROUPED[1]
    key, db = layer.key("W"), f"{BASE}.HIP.{VERSION}_{TWEAK}.ufdb.txt"
    rows = timed(layer, "W", (*GROUP_W, CK_WRW))
    dotted = VERSION.replace("_", ".")
    out = [
        "Info [get_device_name] Raw device name: gfx942:sramecc+:xnack-",
        "Info [Handle] stream: 0x7f3a5c001230, device_id: 0",
        "Info [] MIOPEN_FIND_MODE = NORMAL(1)",
        f"Info [AmdRocmMetadataVersionDetect] ROCm MD version AMDHSA_COv3, HIP version 6.4.43483, MIOpen version {dotted}.{TWEAK}",
        f"Command [LogCmdFindConvolution] ./bin/MIOpenDriver {layer.driver('W')}",
        f'Info2 [FindRecordUnsafe] Looking for key {key} in cache for file "/home/user/.config/miopen/{db}"',
        "Info [TryLoad] Find-db regenerating.",
        "Info [FindSolutionImpl] GemmWrwUniversal (not searchable)",
        "Info [FindSolutionImpl] Perf Db: record not found for: ConvHipImplicitGemmGroupWrwXdlops",
        "Warning [EvaluateInvokers] Solver <ConvBinWinogradRxSf3x2>, workspace required: 1048576, provided ptr: 0x7f3a60000000 size: 0",
    ]
    best: dict[str, tuple[str, str, float, int]] = {}
    for row in rows:
        solver, family, ms, workspace = row
        kernel = {"GEMM": "", "Direct": "naive_conv_ab_nonpacked_wrw_nchw_half_double_half"}.get(
            family, "kernel_grouped_conv_bwd_weight"
        )
        out.append(f"Info [EvaluateInvokers] {solver}: {kernel}: {ms:.6g} < 3.40282e+38")
        out.append(f"Info [EvaluateInvokers] Selected: {solver}: {kernel}: {ms:.6g}, workspace_sz = {workspace}")
        out.append(f"Info2 [SetValues] {key}, content inserted: {item(row, 'W')}")
        best.setdefault(family, row)
    out += [f"Info [FindConvolution] {algorithm(f, 'W')}\t{row[2]:.6g}\t{row[3]}" for f, row in best.items()]
    solver, _, ms, workspace = rows[0]
    out.append(f"Info [FillFindReturnParameters] BWrW Chosen Algorithm: {solver} , {workspace}, {ms:.6g}")
    api = [
        "miopenStatus_t miopenConvolutionBackwardWeightsGetWorkSpaceSize(miopenHandle_t, const miopenTensorDescriptor_t){",
        "\thandle = stream: 0x7f3a5c001230, device_id: 0",
        "\tdyDesc = {64, 256, 28, 28}, {200704, 784, 28, 1}, packed, ",
        "}",
    ]
    return "".join(f"MIOpen(HIP): {text}\n" for text in [*out, *api])


def driver_output() -> str:
    """Return what ``MIOpenDriver … -t 1 -V 1`` prints for one layer.

    The driver runs the forward pass and the gradient of the weights. For the gradient, it also lists the solvers of the
    immediate mode.
    """
    layer, lines = GROUPED[1], []
    machine = (
        "Timestamp: 2026-01-20 10:02:11 UTC; Host Name: node; Operating System: Linux 6.8.0; ROCm: 6.4.43483; "
        "MIOpen Driver: 3.4.0; CPU Vendor: AMD; CPU Model: 2 x EPYC 9654; RAM Size: 1511 GB; "
        "GPU Model: 8 x AMD Instinct MI300X; AMDGPU Driver: 6.12.12"
    )
    words = {
        "F": ("Forward", "Forward Convolution", "fwd"),
        "W": ("Backward Weights", "Backward Convolution Weights", "bwdw"),
    }
    ids = {"GemmWrwUniversal": 102, "ConvDirectNaiveConvWrw": 87, "ConvBinWinogradRxSf3x2": 37}
    for direction in "FW":
        which, full, short = words[direction]
        rows = timed(layer, direction, offers_of(layer, direction))
        solver, family, ms, _ = rows[0]
        lines += [f"MIOpenDriver {layer.driver(direction)}", "PRNG seed: 12345678", machine]
        if direction == "W":
            lines.append(f"{which} Conv solutions available: {len(rows)}")
            lines += [
                f"- id: {ids[name]} algo: {CODE[kind]}, time: {time:.6g} ms, ws: {workspace}, name: {name}"
                for name, kind, time, workspace in rows
            ]
        lines += [
            f"MIOpen {which} Conv. Algorithm: {CODE[family]}, Solution: {ids[solver]}/{solver}",
            f"GPU Kernel Time {which} Conv. Elapsed: {ms * 1.02:.6f} ms (average)",
            "stats: name, n, c, ho, wo, y, x, k, flopCnt, bytesRead, bytesWritten, GFLOPs, GB/s, timeMs",
            f"stats: {short}-conv3x3u2, 64, 256, 28, 28, 3, 3, 256, {layer.gflop * 1e9:.0f}, 0, 0, "
            f"{layer.gflop / ms * 1e3:.0f}, 0, {ms * 1.02:.6f}",
            f"{full} Verifies OK on GPU reference (0.000307883 < 0.0082)",
        ]
    return "\n".join(lines) + "\n"


def performance_log() -> str:
    """Return what MIOpenDriver prints with MIOPEN_PERFORMANCE_LOGS=4.

    First come the times of the weight gradient (W) of one layer, then the times of the layer's forward pass, input
    gradient and weight gradient.
    """

    def record(solver: str, number: int, space: int, phase: str, *configs: tuple[str, list[float]]) -> str:
        made = []
        for name, times in configs:
            kept = sorted(times[2:] or times)
            mean = sum(kept) / len(kept) if kept else 0.0
            least, most = (kept[0], kept[-1]) if kept else (0.0, 0.0)
            of_kernel = f'{{"kernel_name":"{name}","time_executions_ms":{numbers(times)},"is_transformation":false}}'
            made.append(
                f'{{"config_name":"{name}","exec_number":1,"time_executions_ms":{numbers(times)},"time_ms":{mean:g},'
                f'"time_std_ms":0,"time_min_ms":{least:g},"time_max_ms":{most:g},"number_of_transformations":0,'
                f'"kernels":[{of_kernel if times else ""}]}}'
            )
        head = f'{{"solution":"{solver}","solver_id":{number},"workspace_bytes":{space},"phase":"{phase}",'
        return f'{head}"performance_configs":[{",".join(made)}]}}\n'

    def numbers(times: list[float]) -> str:
        return "[" + ",".join(f"{x:g}" for x in times) + "]"

    sizes = (
        "MIOpenDriver convfp16 -n 64 -c 256 -H 56 -W 56 -k 256 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -l 1 -j 1 -m conv -g 32"
    )
    ck, naive = "ConvHipImplicitGemmGroupWrwXdlops", "ConvDirectNaiveConvWrw"
    return "".join(
        (
            f'{{"command":"{sizes} -F 4 -t 1"}}\n',
            record(
                ck, 156, 147456, "tuning", ("wrw_tile_64", [0.9, 0.4, 0.31]), ("wrw_tile_128", [0.8, 0.3, 0.21, 0.2])
            ),
            record(naive, 87, 0, "solver_tuning", ("naive_conv_wrw", [3.2, 3.1, 3.0])),
            record(ck, 156, 147456, "execution", ("wrw_tile_128", [0.4, 0.22, 0.2, 0.2])),
            f'{{"command":"{sizes} -F 0 -t 1"}}\n',
            record("GemmFwdRest", 91, 3612672, "solver_tuning", ("Cijk_Ailk_Bljk", [0.9, 0.9, 0.7])),
            record("ConvBinWinogradRxSf2x3g1", 84, 0, "unknown", ("miopenSp3AsmConv", [0.5, 0.5, 0.4])),
            record("GemmWrwUniversal", 102, 3612672, "solver_tuning", ("Cijk_Alik_Bljk", [])),
            '{"solution":"GemmBwdRest","solver_id":97,"workspace_bytes":361\n',
        )
    )


def perf_db() -> str:
    """Return a perf-db (MIOpen's file of tuned parameters) with two solvers for each dense 1×1 layer."""
    lines = []
    for layer in LAYERS:
        for d in "FBW":
            if layer.groups == 1 and layer.filter == 1:
                word, suffix = {"F": "fwd", "B": "bwd", "W": "wrw"}[d], SUFFIX[d]
                lines.append(
                    f"{layer.perf_key(d)}=ConvBinWinogradRxSf2x3:{200 + layer.c % 97};"
                    f"ConvAsmImplicitGemmGTCDynamic{suffix}XdlopsNHWC:{word},nhwc,fp16,0,1,128,128,16,32,32,4,1,1,2,2,{layer.stride}"
                )
    return "\n".join(sorted(lines)) + "\n"


def user_perf_db() -> str:
    """Return the perf-db (file of tuned parameters) that MIOpen wrote while it searched for the fastest solver.

    The parameters name the fastest variant of the composable-kernel solver, and into how many parts it splits the sum.
    """
    instance = "DeviceGroupedConvBwdWeight_Xdl_CShuffle<{0}, {0}, 64, 32, Default, 8, 2, 2, 1, 4, 4, 1, 1, 1, 1>+{1}"
    lines = []
    for number, layer in enumerate(GROUPED[:4]):
        lines.append(f"{layer.perf_key('W')}={CK_WRW[0]}:{instance.format(64 << number % 2, 1 << number)}")
    return "\n".join(lines) + "\n"


FILES = {
    f"{BASE}.HIP.fdb.txt": system_find_db,
    f"{BASE}.HIP.{VERSION}_{TWEAK}.ufdb.txt": user_find_db,
    f"{BASE}.db.txt": perf_db,
    f"{BASE}.HIP.{VERSION}_{TWEAK}.udb.txt": user_perf_db,
    "miopen_cmd_4242.log": training_log,
    "find.log": find_log,
    "driver_output.txt": driver_output,
    "forms/gfx906_60.HIP.fdb.txt": v1_find_db,
    "forms/performance.log": performance_log,
    "forms/gfx90a68.HIP.fdb.txt": lambda: ODD,
    "forms/gfx1030_36.HIP.3_3_0_damaged.ufdb.txt": lambda: DAMAGED,
}


def main() -> None:
    for name, make in FILES.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make().encode())


if __name__ == "__main__":
    main()
