package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// mostFlights bounds the drawings of a report that show single engines: one for each
// row, of its first run.
const mostFlights = 24

// Flights draws, for each of the first rows, how many requests each engine had over the
// run: one thin line for each engine, the mean in bold.
func Flights(rows []sweep.Row) ([]Plot, error) {
	var out []Plot
	for i := range rows {
		if len(out) == mostFlights {
			break
		}
		if len(rows[i].Runs) == 0 || rows[i].Runs[0] == nil || len(rows[i].Runs[0].Flight) < 2 {
			continue
		}
		p, err := flight(rows[i].Policy+", "+title(&rows[i].Cell, -1, rows), rows[i].Runs[0].Flight)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func flight(title string, moments []replay.Moment) (Plot, error) {
	out := frame(Figure{Key: "requests_at_engines"}, title)
	p := out.plot
	p.X.Label.Text, p.X.Label.Padding, p.X.Tick.Marker = "minutes", 4, marks{}
	engines := len(moments[0].Engines)
	sum := make(plotter.XYs, len(moments))
	for e := range engines {
		points := make(plotter.XYs, len(moments))
		for i := range moments {
			points[i] = plotter.XY{X: moments[i].At / 60, Y: moments[i].Engines[e]}
			sum[i].X, sum[i].Y = points[i].X, sum[i].Y+points[i].Y/float64(engines)
			p.Y.Max = max(p.Y.Max, points[i].Y*1.08)
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return out, err
		}
		line.Color, line.Width = color.RGBA{86, 180, 233, 255}, vg.Points(.8)
		p.Add(line)
		if e == 0 {
			out.legend.Add(fmt.Sprintf("%d engines", engines), line)
		}
	}
	line, err := plotter.NewLine(sum)
	if err != nil {
		return out, err
	}
	line.Color, line.Width = shade(0), vg.Points(2.2)
	p.Add(line)
	out.legend.Add("mean", line)
	return out, nil
}
