//go:build browser

package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/deploy/samples"
)

// rect is a box of a service, or the frame of a namespace.
type rect struct{ X, Y, Width, Height float64 }

// picture is a picture of a mesh. Boxes are by ID of the service.
type picture struct {
	Width, Height float64
	Boxes         map[string]rect
	Frames        []rect
	Edges         []edge
}

// edge is an edge with the data of its path.
type edge struct{ From, To, Path string }

var step = regexp.MustCompile(`([A-Za-z])([^A-Za-z]*)`)

// points returns points of the path: the ends of its lines, and some of each curve.
func (e *edge) points() (list [][2]float64, err error) {
	for _, m := range step.FindAllStringSubmatch(e.Path, -1) {
		var at [3][2]float64
		n, _ := fmt.Sscan(m[2], &at[1][0], &at[1][1], &at[2][0], &at[2][1])
		switch {
		case m[1] == "M" && n == 2 && list == nil, m[1] == "L" && n == 2 && list != nil:
			list = append(list, at[1])
		case m[1] == "Q" && n == 4 && list != nil:
			at[0] = list[len(list)-1]
			const parts = 8
			for i := 1; i <= parts; i++ {
				t := float64(i) / parts
				var p [2]float64
				for j := range p {
					p[j] = (1-t)*(1-t)*at[0][j] + 2*t*(1-t)*at[1][j] + t*t*at[2][j]
				}
				list = append(list, p)
			}
		default:
			return nil, fmt.Errorf("the test cannot read %q in a path", m[0])
		}
	}
	if len(list) < 2 {
		return nil, errors.New("it has no length")
	}
	return list, nil
}

// near is the largest distance of a point from where the numbers in a path have it.
const near = 0.1

// crossed reports whether the rectangle of two points has a part inside r.
func (r rect) crossed(a, b [2]float64) bool {
	return math.Max(a[0], b[0]) > r.X+near && math.Min(a[0], b[0]) < r.X+r.Width-near &&
		math.Max(a[1], b[1]) > r.Y+near && math.Min(a[1], b[1]) < r.Y+r.Height-near
}

func (r rect) has(o rect) bool {
	return o.X >= r.X && o.Y >= r.Y && o.X+o.Width <= r.X+r.Width && o.Y+o.Height <= r.Y+r.Height
}

// faults returns what is wrong with the edges of a picture.
func (p *picture) faults() (list []string) {
	for _, e := range p.Edges {
		if what := p.fault(&e); what != "" {
			list = append(list, fmt.Sprintf("the edge from %s to %s: %s: %s", e.From, e.To, what, e.Path))
		}
	}
	return list
}

// fault returns the first thing that is wrong with an edge, or an empty string.
func (p *picture) fault(e *edge) string {
	points, err := e.points()
	if err != nil {
		return err.Error()
	}
	from, to := p.Boxes[e.From], p.Boxes[e.To]
	for i, end := range []rect{from, to} {
		at := points[i*(len(points)-1)]
		beside := math.Min(math.Abs(at[0]-end.X), math.Abs(at[0]-end.X-end.Width))
		if beside > near || at[1] <= end.Y || at[1] >= end.Y+end.Height {
			return fmt.Sprintf("%v is at no side of %+v", at, end)
		}
	}
	for i, b := range points[1:] {
		a := points[i]
		if math.Min(a[0], b[0]) < 0 || math.Min(a[1], b[1]) < 0 || math.Max(a[0], b[0]) > p.Width || math.Max(a[1], b[1]) > p.Height {
			return "it leaves the picture"
		}
		for id, box := range p.Boxes {
			if box.crossed(a, b) {
				return "it crosses the box of " + id
			}
		}
		for _, f := range p.Frames {
			if f.crossed(a, b) && !f.has(from) && !f.has(to) {
				return "it crosses a namespace of neither end"
			}
		}
	}
	return ""
}

// evaluate runs JavaScript in the page, and decodes what its promise brings.
func evaluate(t *testing.T, ctx context.Context, script string, to any) {
	t.Helper()
	do(t, ctx, chromedp.Evaluate(script, to, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

// shown returns the picture that the page shows.
func shown(t *testing.T, ctx context.Context) (p picture) {
	t.Helper()
	evaluate(t, ctx, `(async () => {
		const rect = (r) => Object.fromEntries(['x', 'y', 'width', 'height'].map((n) => [n, Number(r.getAttribute(n))]));
		const svg = document.querySelector('.picture svg');
		return {
			width: Number(svg.getAttribute('width')), height: Number(svg.getAttribute('height')),
			boxes: Object.fromEntries([...svg.querySelectorAll('g.service')].map((g) => [g.dataset.id, rect(g.querySelector('rect'))])),
			frames: [...svg.querySelectorAll('rect.island')].map(rect),
			edges: [...svg.querySelectorAll('path.route')].map((p) => ({ from: p.dataset.from, to: p.dataset.to, path: p.getAttribute('d') })),
		};
	})()`, &p)
	return p
}

// TestEdgesOfSamples: in the pictures of the sample meshes, no edge crosses a box, at any width of the window.
func TestEdgesOfSamples(t *testing.T) {
	for name, least := range map[string]int{samples.Bookinfo: 2, samples.GatewayAPI: 2, "shop": 4} {
		t.Run(name, func(t *testing.T) {
			mesh := map[string]string{}
			if name == "shop" {
				mesh = shop()
			} else {
				dir := t.TempDir()
				must.Succeed(t, samples.Copy(name, dir))
				entries, err := os.ReadDir(dir)
				must.Succeed(t, err)
				for _, e := range entries {
					text, err := os.ReadFile(filepath.Join(dir, e.Name()))
					must.Succeed(t, err)
					mesh[e.Name()] = string(text)
				}
			}
			s := start(t, mesh)
			ctx := browser(t)
			do(t, ctx, chromedp.Navigate("http://"+s.Monitoring+"/ui/#/mesh"), chromedp.WaitVisible(".picture svg"))
			for _, width := range []int64{400, 800, 1360, 2400} {
				do(t, ctx, chromedp.EmulateViewport(width, 850))
				var p picture
				s.Eventually("the picture fits the window", func() bool {
					p = shown(t, ctx)
					return p.Width >= 320 && len(p.Edges) >= least && number(t, ctx, `document.querySelector('.picture').clientWidth - 4`) <= p.Width
				})
				for _, fault := range p.faults() {
					t.Errorf("%d pixels: %s", width, fault)
				}
			}
		})
	}
}

// TestEdges: in pictures of random meshes, no edge crosses a box or a namespace other than the ones of its ends, and
// the same mesh has the same picture.
func TestEdges(t *testing.T) {
	s := start(t, shop())
	ctx := browser(t)
	do(t, ctx, chromedp.Navigate("http://"+s.Monitoring+"/ui/#/mesh"), chromedp.WaitVisible(".picture svg"))
	seed, _ := histories.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 150 {
		type namespace struct {
			Drawn []map[string]string `json:"drawn"`
			More  int                 `json:"more"`
		}
		var mesh struct {
			Namespaces []namespace `json:"namespaces"`
			Edges      [][2]string `json:"edges"`
			Width      int         `json:"width"`
		}
		mesh.Width = 320 + r.IntN(1800)
		n := 0
		for range 1 + r.IntN(8) {
			x := namespace{Drawn: []map[string]string{}, More: r.IntN(2)}
			for range r.IntN(1 + []int{1, 2, 5, 8, 20, 30, 60}[r.IntN(7)]) {
				x.Drawn = append(x.Drawn, map[string]string{"id": fmt.Sprint(n)})
				n++
			}
			mesh.Namespaces = append(mesh.Namespaces, x)
		}
		for range r.IntN(40) {
			if a, b := r.IntN(max(n, 1)), r.IntN(max(n, 1)); a != b {
				mesh.Edges = append(mesh.Edges, [2]string{fmt.Sprint(a), fmt.Sprint(b)})
			}
		}
		text, err := json.Marshal(mesh)
		must.Succeed(t, err)
		var p, again picture
		for _, to := range []*picture{&p, &again} {
			evaluate(t, ctx, `(async (mesh) => {
				const { box, layout, route, curve } = await import('/ui/layout.js');
				const plan = layout(mesh.namespaces, mesh.width);
				const edges = (mesh.edges ?? []).map(([from, to]) => ({ from, to, a: plan.places.get(from), b: plan.places.get(to) }));
				const lines = route(plan, edges);
				return {
					width: plan.width, height: plan.height, frames: plan.frames.map(({ x, y, width, height }) => ({ x, y, width, height })),
					boxes: Object.fromEntries([...plan.places].map(([id, { x, y }]) => [id, { x, y, width: box.width, height: box.height }])),
					edges: edges.map(({ from, to }, i) => ({ from, to, path: curve(lines[i]) })),
				};
			})(`+string(text)+`)`, to)
		}
		faults := p.faults()
		if fmt.Sprint(p) != fmt.Sprint(again) {
			faults = append(faults, "the second picture is another one")
		}
		if len(p.Boxes) != n || len(p.Edges) != len(mesh.Edges) {
			faults = append(faults, fmt.Sprintf("%d boxes of %d, %d edges of %d", len(p.Boxes), n, len(p.Edges), len(mesh.Edges)))
		}
		if len(faults) > 0 {
			t.Fatalf("%s: %v", text, faults)
		}
	}
}

// Faults that the tests of edges look for are found.
func TestFaultsOfEdges(t *testing.T) {
	boxes := map[string]rect{"a": {100, 100, 50, 20}, "b": {300, 100, 50, 20}, "c": {200, 100, 50, 20}}
	frames := []rect{{90, 90, 70, 40}, {190, 90, 70, 40}, {290, 90, 70, 40}}
	for path, fault := range map[string]string{
		"M150 110L172 110Q175 110 175 113L175 200L275 200L275 110L300 110": "",
		"M150 110L220 110L300 110":                       "crosses the box of c",
		"M150 110L175 110L175 95L275 95L275 110L300 110": "crosses a namespace",
		"M150 110Q225 80 300 110":                        "crosses a namespace",
		"M150 110L175 110L175 900L300 110":               "leaves the picture",
		"M150 110L120 110L300 110":                       "crosses the box of a",
		"M150 110L275 95":                                "at no side",
		"M150 110C1 2 3 4 300 110":                       "cannot read",
		"M150 110":                                       "no length",
	} {
		p := picture{Width: 400, Height: 300, Boxes: boxes, Frames: frames, Edges: []edge{{"a", "b", path}}}
		got := strings.Join(p.faults(), "\n")
		if !strings.Contains(got, fault) || fault == "" && got != "" {
			t.Errorf("%s: %q, want %q", path, got, fault)
		}
	}
}
