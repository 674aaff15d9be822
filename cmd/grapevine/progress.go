package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// progress is a bar on a terminal; elsewhere it shows nothing.
type progress struct {
	w    io.Writer
	last int
}

const progressWidth = 40

func newProgress(w io.Writer, quiet bool) *progress {
	file, ok := w.(*os.File)
	if quiet || !ok {
		return &progress{}
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{w: w}
}

// show draws the bar.
func (p *progress) show(done, all int) {
	if p.w == nil || all == 0 {
		return
	}
	full := done * progressWidth / all
	fmt.Fprintf(p.w, "\r[%s%s] %d/%d", strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full), done, all)
	p.last = done
}

// end wipes the bar.
func (p *progress) end() {
	if p.w != nil && p.last > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", progressWidth+24))
	}
}
