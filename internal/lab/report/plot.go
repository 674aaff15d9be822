package report

import (
	"bytes"
	"io"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// Plot is one drawing of a report.
type Plot struct {
	Name   string // for a file, without suffix
	head   string // the figure and its scale
	title  string // the cells that it covers
	plot   *plot.Plot
	legend plot.Legend
}

// Size of a plot in its file, including the height of the legend.
const (
	plotWidth   = 7 * vg.Inch
	plotHeight  = 3.6 * vg.Inch
	legendWidth = 1.45 * vg.Inch
	margin      = vg.Length(4)
)

// Write draws the plot as "svg" or "png".
func (p *Plot) Write(w io.Writer, format string) error {
	canvas, err := draw.NewFormattedCanvas(plotWidth, plotHeight, format)
	if err != nil {
		return err
	}
	all := draw.New(canvas)
	if p.plot.BackgroundColor != nil {
		all.SetColor(p.plot.BackgroundColor)
		all.Fill(all.Rectangle.Path())
	}
	p.plot.Title.Text = p.head + ": " + p.title
	p.plot.Draw(draw.Crop(all, margin, -legendWidth, margin, -margin))
	p.legend.Draw(draw.Crop(all, plotWidth-legendWidth+8, 0, 0, -24))
	_, err = canvas.WriteTo(w)
	return err
}

// svg returns the drawing as an SVG element without a background.
func (p *Plot) svg() (string, error) {
	background := p.plot.BackgroundColor
	p.plot.BackgroundColor = nil
	defer func() { p.plot.BackgroundColor = background }()
	var b bytes.Buffer
	if err := p.Write(&b, "svg"); err != nil {
		return "", err
	}
	s := b.String()
	if at := strings.Index(s, "<svg"); at >= 0 {
		s = s[at:]
	}
	return s, nil
}

// axis is a dimension of a grid along which a plot can run.
type axis struct {
	label string
	name  func(*sweep.Cell) string                   // of a place on the axis
	part  func(*sweep.Cell) string                   // in the title of a drawing that runs along another axis, "" when dull
	at    func(c *sweep.Cell, place int) (x float64) // of the place's mark
}

func inOrder(_ *sweep.Cell, place int) float64 { return float64(place) }

var axes = []axis{
	{
		"load (share of saturation)", loadText, func(c *sweep.Cell) string { return "load " + loadText(c) },
		func(c *sweep.Cell, _ int) float64 { return c.Load },
	},
	{"engines", func(c *sweep.Cell) string { return c.Fleet }, func(c *sweep.Cell) string { return c.Fleet + " engines" }, inOrder},
	{
		"KV blocks in each engine", func(c *sweep.Cell) string { return strconv.Itoa(c.Blocks) },
		func(c *sweep.Cell) string { return strconv.Itoa(c.Blocks) + " blocks" }, inOrder,
	},
	{"picker replicas, sharing delay", groupText, groupTitle, inOrder},
}

// groupText formats the number of replicas and the state that they share.
func groupText(c *sweep.Cell) string {
	if c.Replicas == 1 {
		return "1 replica"
	}
	return strconv.Itoa(c.Replicas) + " replicas, " + shareText(c.Replicas, c.Share)
}

func groupTitle(c *sweep.Cell) string {
	switch {
	case c.Replicas == 1:
		return "1 replica"
	case c.Share < 0:
		return strconv.Itoa(c.Replicas) + " replicas, sharing cut"
	}
	return strconv.Itoa(c.Replicas) + " replicas, sharing after " + c.Share.String()
}

// Plots draws a figure: for each workload, lines of all policies along each
// dimension that varies, one drawing for each combination of the others; bars
// when nothing varies.
func Plots(rows []sweep.Row, f Figure) ([]Plot, error) {
	var out []Plot
	for _, source := range grouped(rows, func(r *sweep.Row) string { return r.Source }) {
		runsAlong := false
		for along := range axes {
			if len(grouped(source, func(r *sweep.Row) string { return axes[along].name(&r.Cell) })) < 2 {
				continue
			}
			runsAlong = true
			for _, group := range grouped(source, func(r *sweep.Row) string { return title(&r.Cell, along, nil) }) {
				p, err := lines(group, f, along, title(&group[0].Cell, along, source))
				if err != nil {
					return nil, err
				}
				out = append(out, p)
			}
		}
		if runsAlong {
			continue
		}
		p, err := bars(source, f, title(&source[0].Cell, -1, source))
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// grouped groups rows by key, in order of each key's first row.
func grouped(rows []sweep.Row, key func(*sweep.Row) string) [][]sweep.Row {
	var out [][]sweep.Row
	place := map[string]int{}
	for i := range rows {
		k := key(&rows[i])
		at, ok := place[k]
		if !ok {
			at = len(out)
			place[k] = at
			out = append(out, nil)
		}
		out[at] = append(out[at], rows[i])
	}
	return out
}

// title names a drawing by all dimensions except the policy and the axis. If among is set, it omits
// usual values that are equal in all of these rows.
func title(c *sweep.Cell, along int, among []sweep.Row) string {
	usual := sweep.Cell{Blocks: 4000, Replicas: 1}
	parts := []string{c.Source}
	for a := range axes {
		text := axes[a].part(c)
		dull := a > 1 && text == axes[a].part(&usual) && len(grouped(among, func(r *sweep.Row) string { return axes[a].name(&r.Cell) })) == 1
		if a != along && !dull {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '+' {
			return r
		}
		return '-'
	}, strings.NewReplacer(", ", "-", " ", "").Replace(s))
}

// caption returns the full name of a figure, with its unit.
func caption(f Figure) string {
	name, unit := f.Key, ""
	for _, u := range []string{"ms", "s"} {
		if short, ok := strings.CutSuffix(name, "_"+u); ok && !strings.HasSuffix(short, "_per") {
			name, unit = short, " ("+u+")"
		}
	}
	return strings.NewReplacer("_", " ", "ttft", "TTFT", "tpot", "TPOT", "e2e", "E2E").Replace(name) + unit
}

// marks places about five ticks at round numbers.
type marks struct{}

// Ticks implements plot.Ticker.
func (marks) Ticks(low, high float64) []plot.Tick {
	if !(high > low) {
		return []plot.Tick{{Value: low, Label: strconv.FormatFloat(low, 'g', 4, 64)}}
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, m := range []float64{5, 2.5, 2} {
		if step*m <= (high-low)/4 {
			step *= m
			break
		}
	}
	var out []plot.Tick
	for k := math.Ceil(low/step-1e-9) + 0; k*step <= high*(1+1e-9); k++ {
		out = append(out, plot.Tick{Value: k * step, Label: strconv.FormatFloat(math.Round(k*step*1e6)/1e6+0, 'g', -1, 64)})
	}
	return out
}

// decades places ticks at 1, 2 and 5 of each power of ten.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for power := math.Floor(math.Log10(low)); power <= math.Log10(high); power++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, power); v >= low && v <= high {
				out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 4, 64)})
			}
		}
	}
	return out
}
