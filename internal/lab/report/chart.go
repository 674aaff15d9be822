package report

import (
	"cmp"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// frame returns an empty drawing of a figure.
func frame(f Figure, title string) Plot {
	p := plot.New()
	sans := func(s *text.Style, size vg.Length) {
		s.Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
	}
	p.Title.Padding = 8
	p.Y.Min = 0
	p.Y.Tick.Marker = marks{}
	sans(&p.Title.TextStyle, 11)
	sans(&p.X.Label.TextStyle, 10)
	sans(&p.X.Tick.Label, 9)
	sans(&p.Y.Tick.Label, 9)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = faint, faint
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.Gray{Y: 225}
	p.Add(grid)
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.Padding = 3
	sans(&l.TextStyle, 10)
	return Plot{Name: fileName(f.Key + "-" + title), title: title, head: caption(f), plot: p, legend: l}
}

var faint = color.Gray{Y: 140}

// track is the line of one policy.
type track struct {
	policy string
	points []spanned
}

// spanned is a mean over seeds, and how far below and above it single seeds are.
type spanned struct {
	plotter.XY
	below, above float64
}

// spans are the points of a line, for plotter.
type spans []spanned

// Len implements plotter.XYer.
func (s spans) Len() int { return len(s) }

// XY implements plotter.XYer.
func (s spans) XY(i int) (x, y float64) { return s[i].X, s[i].Y }

// YError implements plotter.YErrorer.
func (s spans) YError(i int) (low, high float64) { return s[i].below, s[i].above }

// lines draws a line for each policy along an axis.
func lines(rows []sweep.Row, f Figure, along int, title string) (Plot, error) {
	out := frame(f, title)
	p, ticks, tracks := out.plot, []plot.Tick(nil), []track(nil)
	var all []float64
	for place, group := range grouped(rows, func(r *sweep.Row) string { return axes[along].name(&r.Cell) }) {
		x := axes[along].at(&group[0].Cell, place)
		ticks = append(ticks, plot.Tick{Value: x, Label: axes[along].name(&group[0].Cell)})
		for i := range group {
			y := mean(&group[i], f)
			if math.IsNaN(y) {
				continue
			}
			k := slices.IndexFunc(tracks, func(t track) bool { return t.policy == group[i].Policy })
			if k < 0 {
				k, tracks = len(tracks), append(tracks, track{policy: group[i].Policy})
			}
			lo, hi, _ := span(&group[i], f)
			tracks[k].points = append(tracks[k].points, spanned{plotter.XY{X: x, Y: y}, y - lo, hi - y})
			all = append(all, lo, hi)
		}
	}
	p.X.Label.Text = axes[along].label
	p.X.Label.Padding = 4
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	for i, t := range tracks {
		if err := out.track(i, t); err != nil {
			return out, err
		}
	}
	out.bound(f, all)
	return out, nil
}

// track adds the line of one policy.
func (p *Plot) track(i int, t track) error {
	slices.SortStableFunc(t.points, func(a, b spanned) int { return cmp.Compare(a.X, b.X) })
	line, marks, err := plotter.NewLinePoints(spans(t.points))
	if err != nil {
		return err
	}
	if err := p.whiskers(t.points, shade(i)); err != nil {
		return err
	}
	line.Color, marks.Color = shade(i), shade(i)
	line.Width = vg.Points(1.2)
	if t.policy == replay.Default {
		line.Width = vg.Points(2.6)
	}
	marks.Shape, marks.Radius = plotutil.Shape(i), vg.Points(2.5)
	p.plot.Add(line, marks)
	p.legend.Add(t.policy, line, marks)
	return nil
}

// whiskers draws the range of single seeds around the means, if there are several seeds.
func (p *Plot) whiskers(points []spanned, c color.Color) error {
	if !slices.ContainsFunc(points, func(s spanned) bool { return s.below+s.above > 0 }) {
		return nil
	}
	bars, err := plotter.NewYErrorBars(spans(points))
	if err != nil {
		return err
	}
	bars.Color, bars.Width, bars.CapWidth = c, vg.Points(.7), vg.Points(4)
	p.plot.Add(bars)
	return nil
}

// wide is the ratio of the largest to the smallest time from which on the scale
// is logarithmic, so that one collapse does not flatten the rest.
const wide = 12

// bound fits the frame.
func (p *Plot) bound(f Figure, all []float64) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	low, high := all[0], all[len(all)-1]
	if f.Key == "hit_ratio" { // hit ratios differ little, so the axis need not start at 0
		p.plot.Y.Min, p.plot.Y.Max = math.Floor(low*20-.5)/20, min(math.Ceil(high*20+.5)/20, 1)
		p.plot.Y.Min = max(p.plot.Y.Min, 0)
		return
	}
	p.plot.Y.Max = high * 1.08
	if high <= 0 {
		p.plot.Y.Max = 1
	}
	if low > 0 && high > wide*low {
		p.plot.Y.Min, p.plot.Y.Max = low/1.3, high*1.3
		p.plot.Y.Scale, p.plot.Y.Tick.Marker = plot.LogScale{}, decades{}
		p.head += ", logarithmic"
	}
}

// bars draws a bar for each policy, with its value above.
func bars(rows []sweep.Row, f Figure, title string) (Plot, error) {
	out := frame(f, title)
	p := out.plot
	var labels plotter.XYLabels
	var ticks []plot.Tick
	var all []float64
	for i := range rows {
		y := mean(&rows[i], f)
		lo, hi, _ := span(&rows[i], f)
		labels.XYs = append(labels.XYs, plotter.XY{X: float64(i), Y: hi})
		labels.Labels = append(labels.Labels, strconv.FormatFloat(y, 'f', f.Digit, 64))
		ticks, all = append(ticks, plot.Tick{Value: float64(i)}), append(all, y, hi)
		b, err := plotter.NewBarChart(plotter.Values{y}, min(vg.Points(30), vg.Points(280/float64(len(rows)))))
		if err != nil {
			return out, err
		}
		b.XMin, b.Color, b.LineStyle.Width = float64(i), shade(i), 0
		p.Add(b)
		out.legend.Add(rows[i].Policy, b)
		if err := out.whiskers([]spanned{{plotter.XY{X: float64(i), Y: y}, y - lo, hi - y}}, color.Gray{Y: 60}); err != nil {
			return out, err
		}
	}
	values, err := plotter.NewLabels(labels)
	if err != nil {
		return out, err
	}
	for i := range values.TextStyle {
		values.TextStyle[i].XAlign, values.TextStyle[i].YAlign = draw.XCenter, draw.YBottom
		values.TextStyle[i].Font = p.X.Tick.Label.Font
	}
	p.Add(values)
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Tick.Length = 0
	p.X.Min, p.X.Max = -.6, float64(len(rows))-.4
	p.Y.Max = max(slices.Max(all)*1.12, 1e-9)
	return out, nil
}

// shade returns the colour of policy i: distinct for the colour-blind too.
func shade(i int) color.Color {
	list := []color.RGBA{
		{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {213, 94, 0, 255},
		{86, 180, 233, 255}, {120, 120, 120, 255}, {160, 120, 40, 255}, {90, 60, 150, 255}, {0, 0, 0, 255},
	}
	return list[i%len(list)]
}
