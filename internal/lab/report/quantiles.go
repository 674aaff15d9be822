package report

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Curve is a named sample of measured values.
type Curve struct {
	Name   string
	Values []float64
}

// Quantiles draws the quantile function of each curve. key names the quantity as in CSV, with its
// unit ("ttft_s").
func Quantiles(key, title string, curves []Curve) (Plot, error) {
	out := frame(Figure{Key: key}, title)
	p := out.plot
	p.X.Label.Text, p.X.Label.Padding = "percent of requests", 4
	p.X.Min, p.X.Max = 0, 100
	p.X.Tick.Marker = plot.ConstantTicks([]plot.Tick{
		{Value: 0, Label: "0"}, {Value: 25, Label: "25"}, {Value: 50, Label: "50"}, {Value: 75, Label: "75"}, {Value: 90, Label: "90"}, {Value: 99, Label: "99"},
	})
	var all []float64
	for i, c := range curves {
		values := slices.Sorted(slices.Values(c.Values))
		points := make(plotter.XYs, len(values))
		for k, v := range values {
			points[k] = plotter.XY{X: 100 * float64(k+1) / float64(len(values)), Y: v}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return out, err
		}
		line.Color, line.Width = shade(i), vg.Points(1.6)
		p.Add(line)
		out.legend.Add(c.Name, line)
		all = append(all, values...)
	}
	out.bound(Figure{Key: key}, all)
	return out, nil
}
