package main

import "strings"

// entries are where the work of a request begins: deciding, and taking note of its end. The
// streams of the proxy itself are I/O by nature and not among them.
var entries = []string{
	"(*picker.Scheduler).Choose",
	"(*picker.flight).release",
}

// requestPath records the sinks that the work of a request reaches.
func (a *analysis) requestPath() {
	for _, fn := range a.funcs {
		for _, e := range entries {
			if strings.ReplaceAll(fn.RelString(nil), module, "") != e {
				continue
			}
			for _, r := range a.sinksOf(fn) {
				if !r.callback {
					a.found = append(a.found, finding{where: "request", fn: short(r.in), sink: r.name, in: short(r.in), kind: r.kind + " on the request path", pos: a.prog.Fset.Position(r.in.Pos()).String(), chain: a.chain(fn, r)})
				}
			}
		}
	}
}
