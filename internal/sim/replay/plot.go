package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Plot is one drawing of a report.
type Plot struct {
	Name  string // for a file, without suffix
	Title string
	plot  *plot.Plot
}

// Size of a plot in its file.
const (
	plotWidth  = 7 * vg.Inch
	plotHeight = 4.2 * vg.Inch
)

// Write draws the plot as "svg" or "png".
func (p *Plot) Write(w io.Writer, format string) error {
	to, err := p.plot.WriterTo(plotWidth, plotHeight, format)
	if err != nil {
		return err
	}
	_, err = to.WriteTo(w)
	return err
}

// axis is a dimension of a grid along which a plot can run.
type axis struct {
	label string
	of    func(*Cell) float64
}

var axes = []axis{
	{"load (share of saturation)", func(c *Cell) float64 { return c.Load }},
	{"engines", func(c *Cell) float64 { return float64(c.Endpoints) }},
	{"KV blocks in each engine", func(c *Cell) float64 { return float64(c.Blocks) }},
	{"picker replicas", func(c *Cell) float64 { return float64(c.Replicas) }},
	{"sharing delay (s)", func(c *Cell) float64 { return c.Share.Seconds() }},
}

// Plots draws a figure: for each workload, lines of all policies along the
// first dimension that varies, one drawing for each combination of the
// others; bars when nothing varies. Runs with sharing cut are left out of
// lines along the sharing delay.
func Plots(rows []Row, f Figure) ([]Plot, error) {
	along := varying(rows)
	var keys []string
	groups := map[string][]*Row{}
	for i := range rows {
		key := groupKey(&rows[i].Cell, along)
		if _, ok := groups[key]; !ok {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], &rows[i])
	}
	var out []Plot
	for _, key := range keys {
		p := plot.New()
		p.Title.Text = key + ": " + caption(f)
		p.Y.Label.Text = caption(f)
		p.Y.Min = 0
		var err error
		if along < 0 {
			err = bars(p, groups[key], f)
		} else {
			p.X.Label.Text = axes[along].label
			err = lines(p, groups[key], f, axes[along])
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Plot{Name: fileName(f.Key + "-" + key), Title: p.Title.Text, plot: p})
	}
	return out, nil
}

// varying returns the first axis with several values, -1 when there is none.
func varying(rows []Row) int {
	for a := range axes {
		for i := range rows {
			if axes[a].of(&rows[i].Cell) != axes[a].of(&rows[0].Cell) {
				return a
			}
		}
	}
	return -1
}

// groupKey names a drawing: everything but the policy and the axis.
func groupKey(c *Cell, along int) string {
	parts := []string{c.Source}
	text := []string{
		"load " + strconv.FormatFloat(c.Load, 'g', 4, 64), fmt.Sprintf("%d engines", c.Endpoints), fmt.Sprintf("%d blocks", c.Blocks),
		fmt.Sprintf("%d replicas", c.Replicas), "sharing " + shareText(c.Replicas, c.Share),
	}
	for a := range axes {
		dull := a == 3 && c.Replicas == 1 || a == 4 && (c.Replicas == 1 || along == 3) || a == 2 && c.Blocks == 4000
		if a != along && !dull {
			parts = append(parts, text[a])
		}
	}
	return strings.Join(parts, ", ")
}

func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, strings.NewReplacer(", ", "-", " ", "").Replace(s))
}

// caption says a figure in full.
func caption(f Figure) string {
	name, unit, _ := strings.Cut(f.Key, "_s")
	if unit != "" || !strings.HasSuffix(f.Key, "_s") {
		name, unit = strings.TrimSuffix(f.Key, "_ms"), ""
		if strings.HasSuffix(f.Key, "_ms") {
			unit = " (ms)"
		}
	} else {
		unit = " (s)"
	}
	return strings.ReplaceAll(name, "_", " ") + unit
}

// lines draws a line for each policy. Values over ten times the median are
// cut off by the frame, so that one collapse does not flatten the rest.
func lines(p *plot.Plot, rows []*Row, f Figure, x axis) error {
	var names []string
	points := map[string]plotter.XYs{}
	var all []float64
	for _, r := range rows {
		at, y := x.of(&r.Cell), r.Mean(f)
		if at < 0 || math.IsNaN(y) {
			continue
		}
		if _, ok := points[r.Policy]; !ok {
			names = append(names, r.Policy)
		}
		points[r.Policy] = append(points[r.Policy], plotter.XY{X: at, Y: y})
		all = append(all, y)
	}
	for i, name := range names {
		xy := points[name]
		slices.SortStableFunc(xy, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		line, marks, err := plotter.NewLinePoints(xy)
		if err != nil {
			return err
		}
		line.Color, marks.Color = shade(i), shade(i)
		line.Width = vg.Points(1.2)
		if name == Default {
			line.Width = vg.Points(2.6)
		}
		marks.Shape, marks.Radius = plotutil.Shape(i), vg.Points(2.5)
		p.Add(line, marks)
		p.Legend.Add(name, line, marks)
	}
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	slices.Sort(all)
	if n := len(all); n > 0 {
		p.Y.Max = min(all[n-1], 10*all[n/2]) * 1.05
	}
	return nil
}

// bars draws a bar for each policy, with its value above.
func bars(p *plot.Plot, rows []*Row, f Figure) error {
	var values plotter.Values
	var names []string
	var labels plotter.XYLabels
	for i, r := range rows {
		y := r.Mean(f)
		values, names = append(values, y), append(names, r.Policy)
		labels.XYs = append(labels.XYs, plotter.XY{X: float64(i), Y: y})
		labels.Labels = append(labels.Labels, strconv.FormatFloat(y, 'f', f.Digit, 64))
	}
	b, err := plotter.NewBarChart(values, vg.Points(26))
	if err != nil {
		return err
	}
	b.Color, b.LineStyle.Width = shade(0), 0
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range text.TextStyle {
		text.TextStyle[i].XAlign, text.TextStyle[i].YAlign = draw.XCenter, draw.YBottom
	}
	p.Add(b, text)
	p.NominalX(names...)
	sorted := slices.Sorted(slices.Values(values))
	p.Y.Max = min(sorted[len(sorted)-1], 10*sorted[len(sorted)/2]) * 1.15
	return nil
}

// shade returns the colour of policy i: distinct for the colour-blind too.
func shade(i int) color.Color {
	list := []color.RGBA{
		{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {213, 94, 0, 255},
		{86, 180, 233, 255}, {120, 120, 120, 255}, {160, 120, 40, 255}, {90, 60, 150, 255}, {0, 0, 0, 255},
	}
	return list[i%len(list)]
}

// svg returns the drawing as an SVG element.
func (p *Plot) svg() (string, error) {
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
