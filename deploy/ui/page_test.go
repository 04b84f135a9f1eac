//go:build browser

package ui

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var (
	screenshots = flag.String("screenshots", "", "a folder for the screenshots of the documentation; empty: none are kept")
	measure     = flag.Duration("measure", 0, "how long TestCost watches the server with the page, and as long without; 0: not at all")
	contents    = flag.Int("contents", 0,
		"of TestCost: how many different routes come in turn; 0: each is a new one, and caches fill to their bounds")
	warm  = flag.Int("warm", 0, "of TestCost: how often it measures before the first view")
	views = flag.String("views", "mesh,proxies,pushes,objects", "of TestCost: which views it measures")
)

// browser starts a headless Chromium. Its errors, such as violations of the Content-Security-Policy, are errors of the
// test.
func browser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1360, 850),
		chromedp.Flag("disable-gpu", true), chromedp.WSURLReadTimeout(patience))
	if path := os.Getenv("CHROMIUM"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithBrowserOption(chromedp.WithDialTimeout(patience)))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(cancel)
	chromedp.ListenTarget(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("an exception: %s", e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				t.Errorf("the browser complains: %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	})
	if err := chromedp.Run(ctx, log.Enable(), emulation.SetFocusEmulationEnabled(true)); err != nil {
		// the first call starts the browser, which lives as long as its context
		t.Fatal(err)
	}
	return ctx
}

func do(t *testing.T, ctx context.Context, actions ...chromedp.Action) {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	must.Succeed(t, chromedp.Run(limited, actions...))
}

// text waits until an element contains all texts.
func text(t *testing.T, ctx context.Context, selector string, wants ...string) {
	t.Helper()
	var got string
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		do(t, ctx, chromedp.Evaluate(`document.querySelector(`+strconv.Quote(selector)+`)?.innerText ?? ''`, &got))
		missing := ""
		for _, w := range wants {
			if !strings.Contains(got, w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			shot(t, ctx, "failed")
			t.Fatalf("no %q in %s: %s", missing, selector, got)
		}
	}
}

func number(t *testing.T, ctx context.Context, script string) (n float64) {
	t.Helper()
	do(t, ctx, chromedp.Evaluate(script, &n))
	return n
}

func theme(t *testing.T, ctx context.Context, value string) {
	t.Helper()
	do(t, ctx, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}))
}

// shot takes screenshots of the page in both themes.
func shot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		theme(t, ctx, scheme)
		var png []byte
		do(t, ctx, chromedp.Sleep(300*time.Millisecond), chromedp.ActionFunc(func(ctx context.Context) (err error) {
			png, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).WithOptimizeForSpeed(false).Do(ctx)
			return err
		}))
		must.Succeed(t, os.WriteFile(filepath.Join(*screenshots, "ui-"+name+"-"+scheme+".png"), png, 0o644))
	}
	theme(t, ctx, "light")
}

// TestPage visits all views by keyboard. The views show their content and follow changes, and the page violates no
// policy.
func TestPage(t *testing.T) {
	s := start(t, shop())
	s.proxies(60)
	s.rejecting("catalog-7", "shop", "forbidden")
	ctx := browser(t)
	theme(t, ctx, "light")
	do(t, ctx, chromedp.Navigate("http://"+s.Monitoring+"/ui"))
	text(t, ctx, "nav", "Mesh", "Proxies", "Findings")
	text(t, ctx, ".picture", "shop", "pay", "edge", "catalog", "ledger", "public")
	do(t, ctx, chromedp.Evaluate(`[...document.querySelectorAll('g.service')].find((g) => g.dataset.id.startsWith('catalog.')).focus()`, nil))
	text(t, ctx, ".aside", "catalog.shop", "90 %", "10 %", "VirtualService shop/catalog", "routes.yaml:")
	shot(t, ctx, "mesh")

	// A change becomes a push, which one proxy rejects.
	for i := range 12 {
		s.Write("routes.yaml", routes(fmt.Sprint("v", i)))
		time.Sleep(300 * time.Millisecond)
	}
	s.Write("routes.yaml", routes("forbidden"))
	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("u"))
	text(t, ctx, ".pushes", "VirtualService shop/catalog", "rejected RDS", "cannot be set here", "routes.yaml:")
	do(t, ctx, chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter))
	text(t, ctx, ".pushes .more", "throttle", "to the last acknowledgement", "RDS", "routes.yaml:")
	shot(t, ctx, "pushes")

	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("p"))
	text(t, ctx, ".tbody", "catalog-7.shop", "ERROR", "cannot be set here")
	text(t, ctx, ".note", "61 proxies")
	shot(t, ctx, "proxies")
	var tag string
	// A key that chromedp types enters its letter even though the page prevents that. A real key does not.
	do(t, ctx, chromedp.KeyEvent("/"), chromedp.Evaluate(`document.activeElement.value = ''; document.activeElement.tagName`, &tag))
	if tag != "INPUT" {
		t.Fatalf("/ leads to %s", tag)
	}
	do(t, ctx, chromedp.KeyEvent("CATALOG-7"))
	text(t, ctx, ".note", "1 of 61 proxies")
	do(t, ctx, chromedp.KeyEvent(kb.Escape), chromedp.Evaluate(`document.activeElement.blur()`, nil), chromedp.KeyEvent("j"),
		chromedp.KeyEvent(kb.Enter))
	text(t, ctx, ".card", "catalog-7.shop", "Routes rejected", "cannot be set here")
	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("p"))
	text(t, ctx, ".note", "61 proxies")

	// One of the simulated proxies, with a cluster of the DestinationRule.
	var id string
	do(t, ctx, chromedp.Evaluate(`fetch('/ui/api/proxies?namespace=pay&limit=1').then((r) => r.json()).then((v) => v.rows[0].id)`, &id,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
			return p.WithAwaitPromise(true)
		}))
	do(t, ctx,
		chromedp.Evaluate(`location.hash = '#/proxy/`+id+`?type=cds&name=' + encodeURIComponent('outbound|80||ledger.pay.svc.cluster.local')`,
			nil))
	text(t, ctx, ".origins", "DestinationRule pay/ledger", "policies.yaml:", "Service pay/ledger")
	text(t, ctx, ".tree", "connectTimeout", "outlierDetection")
	if set, all := number(t, ctx, `document.querySelectorAll('.tree li:not(.default)').length`),
		number(t, ctx, `document.querySelectorAll('.tree li.default').length`); set < 5 || all < 10 {
		t.Errorf("%v fields are set, and %v are defaults", set, all)
	}
	shot(t, ctx, "proxy")
	policies := shop()["policies.yaml"]
	s.Write("policies.yaml", strings.Replace(policies, "connectTimeout: 3s", "connectTimeout: 47s", 1))
	text(t, ctx, ".tree", "47s") // it follows the configuration of the proxy
	s.Write("policies.yaml", policies)
	text(t, ctx, ".tree", "3s")
	do(t, ctx, chromedp.Evaluate(`location.hash = '#/proxy/%E0%A4%A'`, nil))
	text(t, ctx, ".card", "%E0%A4%A", "not connected")

	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("o"))
	text(t, ctx, ".tbody", "DestinationRule", "ledger", "in force", "policies.yaml:", "rejected", "of 61 proxies")
	shot(t, ctx, "objects")

	// The page of an object follows what proxies have of it.
	do(t, ctx, chromedp.Evaluate(`location.hash = '#/object/' + encodeURIComponent('VirtualService.networking.istio.io/catalog.shop')`, nil))
	text(t, ctx, ".view", "rejected", "60 of 61 proxies", "catalog-7.shop", "cannot be set here", "routes.yaml:", "Last versions")
	do(t, ctx, chromedp.Evaluate(`document.querySelector('.list summary').click()`, nil))
	text(t, ctx, ".list pre", "write to ", "x-shop: v11")
	shot(t, ctx, "object")
	s.Write("routes.yaml", routes("mended"))
	text(t, ctx, ".view", "in force", "61 of 61 proxies")
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	text(t, ctx, ".tbody", "DestinationRule")
	do(t, ctx, chromedp.KeyEvent("g"), chromedp.KeyEvent("f"))
	text(t, ctx, ".findings", "ratings", "VirtualService shop/reviews", "Fix:")
	shot(t, ctx, "findings")

	// The switch overrides the system's setting, and is kept.
	colour := `getComputedStyle(document.body).backgroundColor`
	var before, after string
	do(t, ctx, chromedp.Evaluate(colour, &before), chromedp.KeyEvent("t"), chromedp.Evaluate(colour, &after))
	if before == after {
		t.Errorf("the switch leaves the colour %s", before)
	}
	do(t, ctx, chromedp.Reload(), chromedp.WaitVisible(".findings"), chromedp.Evaluate(colour, &before))
	if before != after {
		t.Errorf("after a reload it is %s", before)
	}
	contrast(t, ctx)
}

// contrast checks that text has the contrast of WCAG's level AA, in both themes.
func contrast(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		var bad []string
		do(t, ctx, chromedp.Evaluate(`(() => {
			document.documentElement.dataset.theme = '`+scheme+`';
			const probe = document.createElement('span');
			document.body.append(probe);
			const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
			const rgb = (name) => {
				probe.style.color = 'var(' + name + ')';
				canvas.fillStyle = getComputedStyle(probe).color;
				canvas.fillRect(0, 0, 1, 1);
				return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
			};
			const light = (c) => {
				const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
				return 0.2126 * r + 0.7152 * g + 0.0722 * b;
			};
			const bad = [];
			const grounds = ['--paper', '--card', '--soft', '--bad-soft'];
			const texts = ['--text', '--dim', '--accent', '--good', '--warn', '--bad'];
			for (const ground of grounds) for (const text of texts) {
				const [a, b] = [light(rgb(ground)), light(rgb(text))].sort((x, y) => y - x);
				const ratio = (a + 0.05) / (b + 0.05);
				if (ratio < 4.5) bad.push(text + ' on ' + ground + ': ' + ratio.toFixed(2));
			}
			probe.remove();
			return bad;
		})()`, &bad))
		if len(bad) > 0 {
			t.Errorf("%s: %v", scheme, bad)
		}
	}
}

// With 5000 proxies the table has only the visible rows, at any scroll position.
func TestManyProxies(t *testing.T) {
	if testing.Short() {
		t.Skip("it connects 5000 proxies")
	}
	s := start(t, shop())
	s.proxies(5000)
	ctx := browser(t)
	do(t, ctx, chromedp.Navigate("http://"+s.Monitoring+"/ui/#/proxies"))
	text(t, ctx, ".note", "5000 proxies")
	for _, at := range []string{"0", "60000", "1e9"} {
		do(t, ctx, chromedp.Evaluate(`document.querySelector('.scroll').scrollTop = `+at, nil))
		text(t, ctx, ".tbody", "SYNCED")
		s.Eventually("the rows are there", func() bool { return number(t, ctx, `document.querySelectorAll('.tbody [aria-busy]').length`) == 0 })
		if n := number(t, ctx, `document.querySelectorAll('.tbody .tr').length`); n < 5 || n > 100 {
			t.Errorf("at %s there are %v rows", at, n)
		}
	}
	shot(t, ctx, "many-proxies")
	do(t, ctx, chromedp.Navigate("http://"+s.Monitoring+"/ui/#/mesh"))
	text(t, ctx, ".picture", "shop", "pay", "edge", "catalog")
	shot(t, ctx, "many-mesh")
}
