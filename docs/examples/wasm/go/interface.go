package main

import (
	"strings"
	"unsafe"
)

// This file has the parts of the interface that every scorer in Go needs. Copy it as it is.

// text is a text among the facts.
type text struct{ at, size uint32 }

func (t text) String() string {
	return unsafe.String((*byte)(unsafe.Pointer(uintptr(t.at))), t.size)
}

// areas keeps the memory that the picker writes to.
var areas [][]uint64

//go:wasmexport grapevine_v1_alloc
func alloc(size uint32) unsafe.Pointer {
	area := make([]uint64, (size+7)/8)
	areas = append(areas, area)
	return unsafe.Pointer(&area[0])
}

// zeroEnded returns a text as the picker reads it.
func zeroEnded(s string) unsafe.Pointer {
	return unsafe.Pointer(unsafe.StringData(s + "\x00"))
}

var factList = zeroEnded(strings.Join(facts, "\n"))

//go:wasmexport grapevine_v1_facts
func listFacts() unsafe.Pointer { return factList }

//go:wasmexport grapevine_v1_start
func start(config unsafe.Pointer, size uint32) unsafe.Pointer {
	if err := configure(strings.Clone(unsafe.String((*byte)(config), size))); err != nil {
		return zeroEnded(err.Error())
	}
	return nil
}

//go:wasmexport grapevine_v1_score
func scoreAll(r, endpoints unsafe.Pointer, n uint32, scores unsafe.Pointer) int32 {
	score((*request)(r), unsafe.Slice((*endpoint)(endpoints), n), unsafe.Slice((*float64)(scores), n))
	return 0
}

func main() {}
