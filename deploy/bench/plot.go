package main

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// drawn returns the rows that have plots, by workload: a cost and a duration.
func drawn() []struct{ workload, cost, time string } {
	return []struct{ workload, cost, time string }{
		{"W1", "CPU, s", "first full configuration, s"},
		{"W2a", "CPU, s", "wall time, s"},
		{"W3", "CPU a change, ms", "p99, ms"},
		{"W4", "CPU a change, ms", "p99, ms"},
		{"W5", "CPU a change, ms", "p99, ms"},
	}
}

// lineStyles returns the styles of contenders, by the title of their column.
func lineStyles() []struct {
	title string
	color color.RGBA
} {
	return []struct {
		title string
		color color.RGBA
	}{
		{"istiod", color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}},
		{"istiod, tuned", color.RGBA{R: 0xe6, G: 0x9f, A: 0xff}},
		{"istiod-lite", color.RGBA{G: 0x72, B: 0xb2, A: 0xff}},
		{"limit", color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}},
		{"limit, VHDS", color.RGBA{R: 0x44, G: 0x44, B: 0x44, A: 0xff}},
	}
}

// grown matches the headings of W1, and of workloads with a fleet in delta.
var grown = regexp.MustCompile(`^(W\w+), (\d+) services(?:, (\d+) proxies, delta)?$`)

// sample is a section that a plot may show.
type sample struct {
	workload          string
	services, proxies int
	lines             []measured
}

// drawFile draws the plots of a file of results, one SVG for each workload, and links them. It returns false if there
// is nothing to draw.
func drawFile(results, folder string) (any bool, err error) {
	sections, err := readSections(results)
	if err != nil {
		return false, err
	}
	var all []sample
	for _, s := range sections {
		m := grown.FindStringSubmatch(s.heading)
		if m == nil {
			continue
		}
		x := sample{workload: m[1], lines: readTable(s.body)}
		x.services, _ = strconv.Atoi(m[2])
		x.proxies, _ = strconv.Atoi(m[3]) // W1 has none
		all = append(all, x)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return false, fmt.Errorf("make a folder: %w", err)
	}
	for _, d := range drawn() {
		ok, err := drawWorkload(filepath.Join(folder, d.workload+".svg"), all, d.workload, d.cost, d.time)
		if err != nil {
			return any, fmt.Errorf("draw %s: %w", d.workload, err)
		}
		any = any || ok
	}
	return any, writeSections(results, sections)
}

// drawWorkload draws the cost above the duration, by services on the left and by proxies on the right. It returns false
// for a workload with fewer than two points.
func drawWorkload(file string, all []sample, workload string, rows ...string) (bool, error) {
	axes := []struct {
		label  string
		x, and func(sample) int
		fixed  int
	}{
		{"services", func(s sample) int { return s.services }, func(s sample) int { return s.proxies }, usualProxies},
		{"proxies", func(s sample) int { return s.proxies }, func(s sample) int { return s.services }, usualServices},
	}
	var grid [][]*plot.Plot
	for _, row := range rows {
		var line []*plot.Plot
		for _, axis := range axes {
			var on []sample
			for _, s := range all {
				if s.workload == workload && axis.x(s) > 0 && (axis.and(s) == axis.fixed || axis.and(s) == 0) {
					on = append(on, s)
				}
			}
			if len(on) < 2 {
				continue
			}
			p, err := panel(on, axis.x, row)
			if err != nil {
				return false, err
			}
			p.Title.Text, p.X.Label.Text, p.Y.Label.Text = workload, axis.label, row
			line = append(line, p)
		}
		if len(line) > 0 {
			grid = append(grid, line)
		}
	}
	if len(grid) == 0 {
		return false, nil
	}
	const side = 9 * vg.Centimeter
	canvas := vgsvg.New(side*vg.Length(len(grid[0])), side*vg.Length(len(grid)))
	tiles := draw.Tiles{Rows: len(grid), Cols: len(grid[0]), PadX: vg.Points(8), PadY: vg.Points(8), PadTop: vg.Points(6),
		PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(6)}
	for i, line := range plot.Align(grid, tiles, draw.New(canvas)) {
		for j, c := range line {
			grid[i][j].Draw(c)
		}
	}
	to, err := os.Create(file)
	if err != nil {
		return false, err
	}
	_, err = canvas.WriteTo(to)
	if closeErr := to.Close(); err == nil {
		err = closeErr
	}
	return true, err
}

// panel returns one plot of a row. Both axes are logarithmic.
func panel(all []sample, x func(sample) int, row string) (*plot.Plot, error) {
	p := plot.New()
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = samples(all, x), plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for _, style := range lineStyles() {
		var points plotter.XYs
		for _, s := range all {
			for _, m := range s.lines {
				if y, ok := median(m.cells[style.title]); m.row == row && ok && y > 0 {
					points = append(points, plotter.XY{X: float64(x(s)), Y: y})
				}
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width, dots.Color, dots.Shape = style.color, vg.Points(1.5), style.color, draw.CircleGlyph{}
		p.Add(line, dots)
		p.Legend.Add(style.title, line, dots)
	}
	p.Y.Max *= 8 // room for the legend
	return p, nil
}

// samples marks the measured values.
func samples(all []sample, x func(sample) int) plot.Ticker {
	var ticks plot.ConstantTicks
	for _, s := range all {
		ticks = append(ticks, plot.Tick{Value: float64(x(s)), Label: strconv.Itoa(x(s))})
	}
	return ticks
}
