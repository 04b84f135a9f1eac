package multicluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// cluster is one remote cluster. At least one of current and next is set.
type cluster struct {
	id      string
	origin  origin // what names it
	current *link  // link whose objects are in force
	next    *link  // link that has not synced and then replaces current
	objects map[kinds.Key]*kinds.Object
	awaited bool // the first call of the handler waits for it
}

// link is the connection of one kubeconfig.
type link struct {
	cluster    *cluster
	kubeconfig []byte
	began      time.Time
	ctx        context.Context
	cancel     context.CancelFunc
	timer      *time.Timer
	attempt    int           // number of sources that have ended; their calls are ignored
	synced     bool          // the running source has synced
	late       bool          // it has not synced within the timeout
	problem    string        // why no source works, or empty
	source     config.Source // running source, or nil
}

func (l *link) stop() {
	if l != nil {
		l.cancel()
		l.timer.Stop()
	}
}

func (cl *cluster) stop() {
	cl.current.stop()
	cl.next.stop()
}

// follow starts to use a kubeconfig, which replaces the current one once its source has synced.
func (c *Controller) follow(cl *cluster, kubeconfig []byte) {
	if cl.next != nil && bytes.Equal(cl.next.kubeconfig, kubeconfig) {
		return
	}
	cl.next.stop()
	cl.next = nil
	if cl.current != nil && bytes.Equal(cl.current.kubeconfig, kubeconfig) {
		return
	}
	l := &link{cluster: cl, kubeconfig: kubeconfig, began: time.Now()}
	l.ctx, l.cancel = context.WithCancel(c.ctx)
	l.timer = c.after(func() {
		if cl.next == l {
			l.late = true
			c.timeouts.Inc()
		}
	})
	cl.next = l
	c.opts.Logger.Info("remote cluster connects", "cluster", cl.id, "name", cl.origin.name)
	c.running.Add(1)
	safe.Go(c.opts.Logger, "remote cluster", func() {
		defer c.running.Done()
		c.keep(l)
	})
}

// Backoff before a source that ended is made again.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// keep makes and runs the source of a link until the link is stopped, with backoff.
func (c *Controller) keep(l *link) {
	pause := firstPause
	for {
		connected, problem := c.run(l)
		c.take(func() []kinds.Change {
			if l.ctx.Err() != nil {
				return nil
			}
			if l.synced {
				pause = firstPause
			}
			if !connected { // do not delay the first call for it
				l.cluster.awaited = false // nothing will come soon
			}
			l.attempt++
			l.synced, l.problem = false, problem
			return nil
		})
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		}
	}
}

// run makes a source and runs it until it ends. It reports whether a source was made, and a redacted reason for its
// end.
func (c *Controller) run(l *link) (connected bool, problem string) {
	var source config.Source
	err := c.guarded(l, func() (err error) {
		if len(l.kubeconfig) == 0 {
			return errors.New("the kubeconfig is empty")
		}
		source, err = c.opts.Connect(l.cluster.id, l.kubeconfig, c.handler(l))
		return err
	})
	if connected = err == nil; connected {
		c.runs(l, source)
		err = c.guarded(l, func() error { return source.Run(l.ctx) })
		c.runs(l, nil)
	}
	if err == nil {
		return connected, "its source stopped"
	}
	return connected, redact(err.Error(), l.kubeconfig)
}

// runs sets the running source of a link.
func (c *Controller) runs(l *link, s config.Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.source = s
}

// guarded converts a panic to an error, and logs it with the kubeconfig redacted.
func (c *Controller) guarded(l *link, f func() error) error {
	var err error
	if e := safe.Do("remote cluster", func() { err = f() }); e != nil {
		p := e.(*safe.Panic)
		err = &safe.Panic{Name: p.Name, Value: redact(fmt.Sprint(p.Value), l.kubeconfig), Stack: p.Stack}
		c.opts.Logger.Error("recovered from a panic", "err", err, "cluster", l.cluster.id, "stack", string(p.Stack))
	}
	return err
}

// handler returns the handler for a new source of l.
func (c *Controller) handler(l *link) config.Handler {
	c.mu.Lock()
	attempt := l.attempt
	c.mu.Unlock()
	return func(changes []kinds.Change) {
		c.take(func() []kinds.Change {
			if l.ctx.Err() != nil || l.attempt != attempt {
				return nil
			}
			changes = own(l.cluster.id, changes, c.opts.Logger)
			if l.synced {
				return l.cluster.apply(changes)
			}
			return c.sync(l, changes)
		})
	}
}

// own removes changes of other clusters than the source's, which must not replace objects there.
func own(id string, changes []kinds.Change, logger *slog.Logger) []kinds.Change {
	return slices.DeleteFunc(changes, func(ch kinds.Change) bool {
		wrong := ch.Cluster != id || ch.Object != nil && ch.Object.Key != ch.Key
		if wrong {
			logger.Error("dropping a change of another cluster than its source's", "cluster", id, "object", ch.Key.String())
		}
		return wrong
	})
}

// apply applies changes of a source that has synced.
func (cl *cluster) apply(changes []kinds.Change) []kinds.Change {
	kept := changes[:0]
	for _, ch := range changes {
		_, had := cl.objects[ch.Key]
		switch {
		case ch.Object != nil:
			cl.objects[ch.Key] = ch.Object
		case had:
			delete(cl.objects, ch.Key)
		default:
			continue
		}
		kept = append(kept, ch)
	}
	return kept
}

// sync replaces the objects of a cluster by a new source's, and returns the differences.
func (c *Controller) sync(l *link, all []kinds.Change) []kinds.Change {
	cl := l.cluster
	objects := make(map[kinds.Key]*kinds.Object, len(all))
	var changes []kinds.Change
	for _, ch := range all {
		if ch.Object == nil {
			continue
		}
		old := cl.objects[ch.Key]
		if old != nil && config.Equal(old, ch.Object) {
			objects[ch.Key] = old
			continue
		}
		objects[ch.Key] = ch.Object
		changes = append(changes, ch)
	}
	for key := range cl.objects {
		if objects[key] == nil {
			changes = append(changes, kinds.Change{Key: key})
		}
	}
	config.Sort(changes)
	cl.objects, cl.awaited = objects, false
	l.synced, l.problem = true, ""
	if cl.next == l {
		l.timer.Stop()
		cl.current.stop()
		cl.current, cl.next = l, nil
	}
	c.opts.Logger.Info(
		"remote cluster synced", "cluster", cl.id, "name", cl.origin.name, "objects", len(objects), "changed", len(changes), "dur",
		time.Since(l.began),
	)
	return changes
}
