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

// WriteSVG draws, for each result, the time to first token of the slowest tenth of one
// cluster's users over the run.
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
	canvas, err := draw.NewFormattedCanvas(7*vg.Inch, 3.4*vg.Inch, "svg")
	if err != nil {
		return fmt.Errorf("clusters: %w", err)
	}
	p.Draw(draw.New(canvas))
	_, err = canvas.WriteTo(out)
	return err
}
