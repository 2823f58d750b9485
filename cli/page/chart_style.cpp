#include "cli/page/chart.h"

namespace regroup {

// Colours have a contrast of at least 3:1 with their backgrounds and can be distinguished by
// colour-blind readers (after Okabe and Ito). Each colour also has its own dashes. Series that are
// steps of one quantity use r0 to r7, from violet to yellow.
std::string_view chart_style() {
  return R"(
.chart{--ground:#fff;--ink:#1b1f24;--soft:#57606a;--rule:#d8dee4;--c0:#0068a8;--c1:#c2540a;--c2:#00785a;
--c3:#a8447f;--c4:#5c4bb3;--c5:#8a6d00;--c6:#2b8aa8;--c7:#6e7781;
--r0:#3b2a7a;--r1:#34489c;--r2:#1f66ad;--r3:#107fa3;--r4:#0b8a84;--r5:#2a8a58;--r6:#5f8426;--r7:#8f7400;
font:12px system-ui,sans-serif}
@media screen and (prefers-color-scheme:dark){.chart{--ground:#14171a;--ink:#e6e9ec;--soft:#a3abb3;
--rule:#343a40;--c0:#5ab0ee;--c1:#f5915a;--c2:#3cc7a0;--c3:#e592c2;--c4:#a99bf5;--c5:#d9b83f;--c6:#6cc7e0;
--c7:#a3abb3;--r0:#b9a6ff;--r1:#97aeff;--r2:#72bbff;--r3:#4fc6ea;--r4:#3fcfc4;--r5:#62d492;--r6:#a2d35c;--r7:#e0c84a}}
.chart text{fill:var(--soft)}.chart .label{fill:var(--ink)}
.chart .chart-title{fill:var(--ink);font-size:14px;font-weight:600}
.chart .ground{fill:var(--ground)}
.chart path{fill:none}
.chart .grid{stroke:var(--rule);stroke-width:.7}.chart .base{stroke:var(--soft);stroke-width:1}
.chart .threshold{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:1 3}
.chart .line{stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.chart .faint{stroke-width:1.2;stroke-opacity:.75}
.chart .dot{stroke:var(--ground);stroke-width:.8}
.chart .line.c0{stroke:var(--c0)}.chart .line.c1{stroke:var(--c1);stroke-dasharray:6 3}
.chart .line.c2{stroke:var(--c2);stroke-dasharray:1.5 3}.chart .line.c3{stroke:var(--c3);stroke-dasharray:8 3 2 3}
.chart .line.c4{stroke:var(--c4);stroke-dasharray:3 3}.chart .line.c5{stroke:var(--c5);stroke-dasharray:10 4}
.chart .line.c6{stroke:var(--c6);stroke-dasharray:2 2 6 2}.chart .line.c7{stroke:var(--c7);stroke-dasharray:4 2 1 2}
.chart .dot.c0,.chart .bar.c0{fill:var(--c0)}.chart .dot.c1,.chart .bar.c1{fill:var(--c1)}.chart .dot.c2,.chart .bar.c2{fill:var(--c2)}
.chart .dot.c3,.chart .bar.c3{fill:var(--c3)}.chart .dot.c4,.chart .bar.c4{fill:var(--c4)}.chart .dot.c5,.chart .bar.c5{fill:var(--c5)}
.chart .dot.c6,.chart .bar.c6{fill:var(--c6)}.chart .dot.c7,.chart .bar.c7{fill:var(--c7)}
.chart .line.r0{stroke:var(--r0)}.chart .dot.r0{fill:var(--r0)}.chart .line.r1{stroke:var(--r1)}.chart .dot.r1{fill:var(--r1)}
.chart .line.r2{stroke:var(--r2)}.chart .dot.r2{fill:var(--r2)}.chart .line.r3{stroke:var(--r3)}.chart .dot.r3{fill:var(--r3)}
.chart .line.r4{stroke:var(--r4)}.chart .dot.r4{fill:var(--r4)}.chart .line.r5{stroke:var(--r5)}.chart .dot.r5{fill:var(--r5)}
.chart .line.r6{stroke:var(--r6)}.chart .dot.r6{fill:var(--r6)}.chart .line.r7{stroke:var(--r7)}.chart .dot.r7{fill:var(--r7)}
)";
}

}  // namespace regroup
