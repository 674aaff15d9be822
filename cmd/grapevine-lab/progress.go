package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/cli"
)

// progress is a progress bar on a terminal. Elsewhere it prints nothing.
type progress struct {
	w     io.Writer
	now   func() time.Time
	begin time.Time
	last  time.Time // time of the last drawing
	width int       // of the current output
}

const (
	progressWidth = 40
	progressEvery = 100 * time.Millisecond
)

func newProgress(w io.Writer, quiet bool) *progress {
	file, ok := w.(*os.File)
	if quiet || !ok || !cli.IsTerminal(file) {
		return &progress{}
	}
	return &progress{w: w, now: time.Now, begin: time.Now()}
}

// show redraws the bar at intervals.
func (p *progress) show(done float64, all int) {
	if p.w == nil || all == 0 {
		return
	}
	now := p.now()
	if now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	share := min(done/float64(all), 1)
	full := int(share * progressWidth)
	line := fmt.Sprintf("[%s%s] %3.0f%% of %d runs", strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full), 100*share, all)
	if spent := now.Sub(p.begin); share > .01 && spent > time.Second {
		line += fmt.Sprintf(", %v left", (time.Duration(float64(spent) * (1 - share) / share)).Round(time.Second))
	}
	fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	p.width = len(line)
}

// end clears the bar.
func (p *progress) end() {
	if p.w != nil && p.width > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
	}
}
