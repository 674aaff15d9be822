package main

import (
	"go/types"
	"maps"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// held is the set of mutexes that may be held, by type and field.
type held map[string]bool

// effect is the net effect of a function on mutexes after it returns.
type effect struct{ locks, unlocks []string }

// mutexCall returns the mutex that a call locks or unlocks.
func mutexCall(call *ssa.CallCommon) (mutex string, locks, unlocks bool) {
	fn := call.StaticCallee()
	if fn == nil || len(call.Args) == 0 {
		return "", false, false
	}
	switch fn.RelString(nil) {
	case "(*sync.Mutex).Lock", "(*sync.RWMutex).Lock", "(*sync.RWMutex).RLock", "(*sync.Mutex).TryLock":
		return mutexName(call.Args[0]), true, false
	case "(*sync.Mutex).Unlock", "(*sync.RWMutex).Unlock", "(*sync.RWMutex).RUnlock":
		return mutexName(call.Args[0]), false, true
	}
	return "", false, false
}

// mutexName names a mutex by the type and field that hold it.
func mutexName(v ssa.Value) string {
	switch v := v.(type) {
	case *ssa.FieldAddr:
		t := v.X.Type().Underlying().(*types.Pointer).Elem()
		return pathOf(t) + "." + t.Underlying().(*types.Struct).Field(v.Field).Name()
	case *ssa.Global:
		return v.RelString(nil)
	case *ssa.FreeVar:
		return "captured " + v.Name()
	}
	return pathOf(v.Type()) + " " + v.Name()
}

// settleEffects finds functions that return with a mutex held, or unlock their caller's.
func (a *analysis) settleEffects() {
	for range 3 {
		for _, fn := range a.funcs {
			if fn.Recover != nil && len(fn.Blocks) == 0 {
				continue
			}
			e := &effect{}
			locks, unlocks := map[string]bool{}, map[string]bool{}
			deferred := deferredUnlocks(fn)
			a.flow(fn, func(i ssa.Instruction, h held) {
				switch i := i.(type) {
				case *ssa.Return:
					for m := range h {
						if !deferred[m] {
							locks[m] = true
						}
					}
				case *ssa.Call:
					if m, _, un := mutexCall(i.Common()); un && !h[m] {
						unlocks[m] = true
					}
				}
			})
			e.locks, e.unlocks = slices.Sorted(maps.Keys(locks)), slices.Sorted(maps.Keys(unlocks))
			a.effects[fn] = e
		}
	}
}

func deferredUnlocks(fn *ssa.Function) map[string]bool {
	list := map[string]bool{}
	for _, b := range fn.Blocks {
		for _, i := range b.Instrs {
			if d, ok := i.(*ssa.Defer); ok {
				if m, _, un := mutexCall(d.Common()); un {
					list[m] = true
				}
				if f := funcOf(d.Call.Value); f != nil { // defer func() { mu.Unlock() }()
					for _, c := range callsOf(f) {
						if m, _, un := mutexCall(c.Common()); un {
							list[m] = true
						}
					}
				}
			}
		}
	}
	return list
}

// flow visits each instruction of fn with the mutexes that may be held before it.
func (a *analysis) flow(fn *ssa.Function, visit func(ssa.Instruction, held)) {
	in := make([]held, len(fn.Blocks))
	in[0] = held{}
	todo := []int{0}
	for len(todo) > 0 {
		b := fn.Blocks[todo[0]]
		todo = todo[1:]
		h := maps.Clone(in[b.Index])
		for _, i := range b.Instrs {
			a.move(i, h)
		}
		for _, next := range b.Succs {
			grown := in[next.Index] == nil
			if grown {
				in[next.Index] = held{}
			}
			for m := range h {
				if !in[next.Index][m] {
					in[next.Index][m], grown = true, true
				}
			}
			if grown {
				todo = append(todo, next.Index)
			}
		}
	}
	for _, b := range fn.Blocks {
		if in[b.Index] == nil {
			continue // not reached
		}
		h := maps.Clone(in[b.Index])
		for _, i := range b.Instrs {
			visit(i, h)
			a.move(i, h)
		}
	}
}

// move applies an instruction's effect on mutexes.
func (a *analysis) move(i ssa.Instruction, h held) {
	call, ok := i.(*ssa.Call)
	if !ok {
		return
	}
	if m, locks, unlocks := mutexCall(call.Common()); locks {
		h[m] = true
		return
	} else if unlocks {
		delete(h, m)
		return
	}
	if callee := call.Common().StaticCallee(); callee != nil {
		if e := a.effects[callee]; e != nil {
			for _, m := range e.unlocks {
				delete(h, m)
			}
			for _, m := range e.locks {
				h[m] = true
			}
		}
	}
}

// underLocks records the sinks that fn reaches while it holds a mutex.
func (a *analysis) underLocks(fn *ssa.Function) {
	a.flow(fn, func(i ssa.Instruction, h held) {
		call, ok := i.(ssa.CallInstruction)
		if _, async := i.(*ssa.Go); !ok || async || len(h) == 0 {
			return
		}
		add := func(r reached, chain []string) {
			for m := range h {
				a.found = append(a.found, finding{where: m, fn: short(fn), sink: r.name, in: short(r.in), kind: r.kind, pos: a.prog.Fset.Position(i.Pos()).String(), chain: chain})
			}
		}
		s, is := a.sinkOf(fn, call)
		if is {
			add(reached{s, fn, nil}, []string{short(fn)})
			if !s.callback {
				return
			}
		}
		for _, callee := range a.callees(fn, call) {
			for _, r := range a.sinksOf(callee) {
				if r.callback && r.in.Package() != fn.Package() {
					continue
				}
				add(r, append([]string{short(fn)}, a.chain(callee, r)...))
			}
		}
	})
}
