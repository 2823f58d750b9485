#include "cli/page/page_style.h"

namespace regroup {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--ground:#fff;--card:#f6f8fa;--ink:#1b1f24;--soft:#57606a;--rule:#d8dee4;--link:#0068a8;
--warn:#8a4b00;--warn-ground:#fff4e0;--good:#00694e;--bad:#a3261d}
@media screen and (prefers-color-scheme:dark){:root{--ground:#14171a;--card:#1c2024;--ink:#e6e9ec;--soft:#a3abb3;
--rule:#343a40;--link:#7cc0f2;--warn:#ffc069;--warn-ground:#33270f;--good:#4fd0a8;--bad:#ff9189}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1.2rem 1rem 3rem;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header p{margin:0;color:var(--soft)}h1{margin:.1rem 0 1rem;font-size:1.6rem;line-height:1.25;overflow-wrap:anywhere}
h2{margin:2.4rem 0 .8rem;font-size:1.2rem;border-bottom:1px solid var(--rule);padding-bottom:.3rem}
h3{margin:0;font-size:1rem}p{max-width:45rem}a{color:var(--link)}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--ground);padding:.3rem .6rem}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;list-style:none;margin:0;padding:0}
nav a{display:inline-block;padding:.3rem 0}
dl{margin:0 0 1.2rem}dl div{display:grid;grid-template-columns:9rem 1fr;gap:0 1rem;padding:.35rem 0;border-bottom:1px solid var(--rule)}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.warnings{list-style:none;padding:0;margin:0 0 1rem}
.warnings li{background:var(--warn-ground);color:var(--ink);border-left:4px solid var(--warn);padding:.5rem .8rem;
margin:0 0 .4rem;overflow-wrap:anywhere}.warnings strong{color:var(--warn)}
.verdict{background:var(--card);border-left:4px solid;padding:.5rem .8rem;margin:0 0 1rem;overflow-wrap:anywhere}
.verdict span{font-weight:700;margin-right:.3rem}.verdict.good{border-color:var(--good)}.verdict.good span{color:var(--good)}
.verdict.bad{border-color:var(--bad)}.verdict.bad span{color:var(--bad)}
pre{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:.7rem .9rem;overflow-x:auto;font-size:.875rem}
.scroll{overflow-x:auto;margin:0 0 1.2rem}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
section>h3{margin:1.6rem 0 .4rem}
th,td{padding:.25rem .9rem .25rem 0;text-align:left;border-bottom:1px solid var(--rule);white-space:nowrap}
th{font-weight:600;vertical-align:bottom}td{vertical-align:top}.number{text-align:right}.long{white-space:normal;overflow-wrap:anywhere;min-width:12rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:1rem;margin:0 0 1.2rem}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.8rem}
.figures>figure{max-width:46rem}
figcaption p{margin:.1rem 0 .6rem;color:var(--soft);font-size:.875rem;line-height:1.4}
figure .chart{--ground:var(--card);display:block;width:100%;height:auto}
summary{color:var(--link);cursor:pointer;font-size:.875rem;padding:.3rem 0;width:fit-content}
figure .scroll{max-height:20rem;overflow:auto;margin:0}
footer{margin-top:3rem;color:var(--soft);font-size:.875rem}
@media (max-width:34rem){dl div{grid-template-columns:1fr}h1{font-size:1.35rem}}
@media print{body{max-width:none;padding:0;font-size:10pt}nav,.skip,figure details{display:none}h2{break-after:avoid}
figure,dl div,tr{break-inside:avoid}.figures{grid-template-columns:1fr 1fr}.scroll{overflow:visible}
table{font-size:7.5pt}th,td{white-space:normal;overflow-wrap:anywhere;padding-right:.5rem}thead{display:table-header-group}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

}  // namespace

std::string_view page_style() { return kStyle; }

}  // namespace regroup
