package clusters

import (
	"fmt"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// WriteSVG draws the p90 of the time to first token over the run, for the users of one cluster, per
// result.
func WriteSVG(out io.Writer, results []*Result) error {
	p := plot.New()
	p.X.Label.Text = "seconds; the cluster's load rises and falls once"
	p.Y.Label.Text = "first token, p90, s"
	p.Y.Min = 0
	p.Legend.Top = true
	for i, r := range results {
		var line plotter.XYs
		for k, list := range r.curve {
			if len(list) > 0 {
				line = append(line, plotter.XY{X: (float64(k) + .5) / slots * r.Seconds, Y: quantile(list, .9)})
			}
		}
		l, err := plotter.NewLine(line)
		if err != nil {
			return fmt.Errorf("clusters: %w", err)
		}
		l.Color, l.Dashes, l.Width = plotutil.Color(i), plotutil.Dashes(i), vg.Points(1.5)
		p.Add(l)
		p.Legend.Add(string(r.Options.Policy), l)
	}
	return write(out, 7*vg.Inch, func(c draw.Canvas) { p.Draw(c) })
}

// write renders a picture as SVG.
func write(out io.Writer, width vg.Length, with func(c draw.Canvas)) error {
	canvas, err := draw.NewFormattedCanvas(width, 3.4*vg.Inch, "svg")
	if err != nil {
		return fmt.Errorf("clusters: %w", err)
	}
	with(draw.New(canvas))
	_, err = canvas.WriteTo(out)
	return err
}

// WriteSizesSVG draws latency, the share of requests that leave home, and the traffic between
// clusters against the number of clusters, per policy.
func WriteSizesSVG(out io.Writer, rows []Row) error {
	panels := []struct {
		label string
		value func(r *Row) float64
	}{
		{"first token, p90, s", func(r *Row) float64 { return r.P90 }},
		{"left home, %", func(r *Row) float64 { return 100 * r.Spill }},
		{"control, kB/s per cluster", func(r *Row) float64 { return r.Control / 1000 }},
	}
	plots := [][]*plot.Plot{make([]*plot.Plot, len(panels))}
	for i, panel := range panels {
		p := plot.New()
		p.X.Label.Text, p.Y.Label.Text = "clusters", panel.label
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, sizeTicks(rows)
		p.Y.Min = 0
		for k, policy := range Policies {
			var line plotter.XYs
			for j := range rows {
				if r := &rows[j]; r.Policy == policy {
					line = append(line, plotter.XY{X: float64(r.Clusters), Y: panel.value(r)})
				}
			}
			if len(line) == 0 {
				continue
			}
			l, points, err := plotter.NewLinePoints(line)
			if err != nil {
				return fmt.Errorf("clusters: %w", err)
			}
			l.Color, l.Dashes, l.Width = plotutil.Color(k), plotutil.Dashes(k), vg.Points(1.5)
			points.Color, points.Shape = l.Color, draw.CircleGlyph{}
			p.Add(l, points)
			if i == 0 {
				p.Legend.Add(string(policy), l)
			}
		}
		p.Legend.Top, p.Legend.Left, p.Legend.YOffs = true, true, vg.Points(4)
		p.Y.Max *= 1.35 // room for the legend
		plots[0][i] = p
	}
	return write(out, 10*vg.Inch, func(c draw.Canvas) {
		tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Points(12), PadTop: vg.Points(4), PadRight: vg.Points(4)}
		for i, canvas := range plot.Align(plots, tiles, c)[0] {
			plots[0][i].Draw(canvas)
		}
	})
}

// sizeTicks labels the sizes that occur.
func sizeTicks(rows []Row) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for i := range rows {
		if n := rows[i].Clusters; i == 0 || rows[i-1].Clusters != n {
			ticks = append(ticks, plot.Tick{Value: float64(n), Label: fmt.Sprint(n)})
		}
	}
	return ticks
}
