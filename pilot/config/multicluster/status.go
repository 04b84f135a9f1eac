package multicluster

import (
	"cmp"
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Cluster is the status of a remote cluster in the format of istioctl remote-clusters.
type Cluster struct {
	ID         string `json:"id"`
	SecretName string `json:"secretName"` // namespace/name of a Secret, or the path of a file
	SyncStatus string `json:"syncStatus"` // one of the constants below
}

// Values of SyncStatus.
const (
	Synced  = "synced"  // its objects are in force
	Syncing = "syncing" // it has not synced yet
	Timeout = "timeout" // it has not synced in time; it is added when it syncs
	Closed  = "closed"  // its source cannot be made, or has ended; it is retried
)

func (cl *cluster) status() string {
	l := cmp.Or(cl.current, cl.next)
	switch {
	case l.problem != "":
		return Closed
	case l == cl.current:
		return Synced
	case l.late:
		return Timeout
	}
	return Syncing
}

// HasSynced reports whether the handler's first call has returned. It has the objects of every cluster known at the
// start, except the ones that exceeded the timeout.
func (c *Controller) HasSynced() bool { return c.synced.Load() }

// Awaited names the clusters that the first call of the handler waits for.
func (c *Controller) Awaited() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awaited()
}

func (c *Controller) awaited() []string {
	var ids []string
	for id, cl := range c.clusters {
		if cl.awaited {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Clusters returns the remote clusters sorted by ID.
func (c *Controller) Clusters() []Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Cluster, 0, len(c.clusters))
	for _, id := range slices.Sorted(maps.Keys(c.clusters)) {
		cl := c.clusters[id]
		list = append(list, Cluster{id, cl.origin.name, cl.status()})
	}
	return list
}

// Lacks reports whether a Secret or a file names the cluster and it has not synced.
func (c *Controller) Lacks(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.clusters[id]
	return cl != nil && cl.status() != Synced
}

// Source returns the source of a cluster that has synced, or nil.
func (c *Controller) Source(id string) config.Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.clusters[id]
	if cl == nil || cl.status() != Synced {
		return nil
	}
	return cl.current.source
}

// Kubeconfig returns the kubeconfig in use for a cluster, or else the one that is tried, or nil if there is no such
// cluster. The caller must not modify it.
func (c *Controller) Kubeconfig(id string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.clusters[id]
	if cl == nil {
		return nil
	}
	return cmp.Or(cl.current, cl.next).kubeconfig
}

// Findings returns the current findings. The caller must not modify the result.
func (c *Controller) Findings() []diag.Diagnostic {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clip(c.findings)
	for _, id := range slices.Sorted(maps.Keys(c.clusters)) {
		for _, l := range []*link{c.clusters[id].current, c.clusters[id].next} {
			if l != nil && l.source != nil {
				list = append(list, l.source.Findings()...)
			}
		}
	}
	return list
}

// report updates the findings, and logs new and resolved ones.
func (c *Controller) report() {
	now := slices.Clone(c.refused)
	for _, cl := range c.clusters {
		now = append(now, cl.findings(c.opts.Timeout.String())...)
	}
	slices.SortFunc(now, func(a, b diag.Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.File, b.File), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message),
		)
	})
	for _, d := range now {
		if !slices.Contains(c.findings, d) {
			c.opts.Logger.Warn("finding", "finding", d.String())
		}
	}
	for _, d := range c.findings {
		if !slices.Contains(now, d) {
			c.opts.Logger.Info("finding is gone", "finding", d.String())
		}
	}
	c.findings = now
}

func (cl *cluster) findings(timeout string) []diag.Diagnostic {
	var list []diag.Diagnostic
	add := func(severity diag.Severity, code, message, fix string) {
		d := cl.origin.finding(cl.id)
		d.Severity, d.Code, d.Message, d.Fix = severity, code, "cluster "+cl.id+message, fix
		list = append(list, d)
	}
	if l := cl.current; l != nil && l.problem != "" {
		add(
			diag.Warning, "ClusterClosed", " is read no longer: "+l.problem+"; what it had stays in force",
			"see that its API server answers; it is tried again",
		)
	}
	l := cl.next
	if l == nil {
		return list
	}
	kept := ""
	if cl.current != nil {
		kept = "; the kubeconfig before this one stays in use"
	}
	switch {
	case l.problem != "":
		add(diag.Error, "ClusterNotConnected", " cannot be read with this kubeconfig: "+l.problem+kept, "mend the kubeconfig; it is tried again")
	case l.late:
		add(
			diag.Warning, "ClusterTimeout", " has not synced within "+timeout+kept,
			"see that its API server can be reached and lets the kubeconfig's user list and watch",
		)
	}
	return list
}
