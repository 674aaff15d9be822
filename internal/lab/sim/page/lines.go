package page

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Page is the metrics page of an engine: every line's fixed part is made once,
// and only numbers are written per scrape.
type Page struct {
	lines []line
	text  strings.Builder // text before the next number

	maxLoRA int
}

// line is fixed text and the number behind it.
type line struct {
	text string
	read func(*view) float64
}

// view is the data of one scrape.
type view struct {
	cores []*Meter // snapshots, by rank
	start float64  // process start, seconds since the epoch
	now   float64
	http  *HTTPMeter
}

func (p *Page) family(name, kind, help string) {
	fmt.Fprintf(&p.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (p *Page) value(series string, read func(*view) float64) {
	p.text.WriteString(series)
	p.text.WriteByte(' ')
	p.lines = append(p.lines, line{p.text.String(), read})
	p.text.Reset()
	p.text.WriteByte('\n')
}

func (p *Page) fixed(series string, v float64) {
	p.value(series, func(*view) float64 { return v })
}

// created is the companion series with which the Python client marks counters.
func (p *Page) created(name, labels string) {
	p.value(name+"_created"+labels, func(v *view) float64 { return v.start })
}

// histogram writes all series of one histogram.
func (p *Page) histogram(name, labels string, bounds []float64, read func(*view) *histogram) {
	open := "{"
	if labels != "" {
		open = labels[:len(labels)-1] + ","
	}
	for i, b := range bounds {
		p.value(fmt.Sprintf("%s_bucket%sle=%q}", name, open, floatText(b)), func(v *view) float64 { return float64(read(v).below(i + 1)) })
	}
	all := func(v *view) float64 { return float64(read(v).below(len(bounds) + 1)) }
	p.value(fmt.Sprintf("%s_bucket%sle=\"+Inf\"}", name, open), all)
	p.value(name+"_count"+labels, all)
	p.value(name+"_sum"+labels, func(v *view) float64 { return read(v).sum })
	p.created(name, labels)
}

// Append writes the page of an engine that runs since start, with a meter for each rank.
func (p *Page) Append(dst []byte, start, now time.Time, ranks []*Meter, requests *HTTPMeter) []byte {
	v := &view{start: float64(start.UnixMicro()) / 1e6, now: float64(now.UnixMicro()) / 1e6, http: requests.snapshot()}
	for _, m := range ranks {
		v.cores = append(v.cores, m.snapshot())
	}
	return appendLoRA(p.append(dst, v), v, p.maxLoRA)
}

func (p *Page) append(dst []byte, v *view) []byte {
	for _, l := range p.lines {
		dst = append(dst, l.text...)
		dst = appendFloat(dst, l.read(v))
	}
	return append(dst, p.text.String()...)
}

// appendFloat writes a number as the Python client does.
func appendFloat(dst []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return append(strconv.AppendInt(dst, int64(v), 10), ".0"...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

func floatText(v float64) string { return string(appendFloat(nil, v)) }
