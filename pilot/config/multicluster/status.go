package multicluster

import (
	"cmp"
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Cluster is how a remote cluster stands, as istioctl remote-clusters reads it.
type Cluster struct {
	ID         string `json:"id"`
	SecretName string `json:"secretName"` // namespace/name
	SyncStatus string `json:"syncStatus"` // one of those below
}

// Values of SyncStatus.
const (
	Synced  = "synced"  // what it has is in force
	Syncing = "syncing" // it is awaited
	Timeout = "timeout" // it has not synced in time; it is added when it comes
	Closed  = "closed"  // its source cannot be made, or has ended, and is tried again
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

// HasSynced reports whether the handler has got, and handled, what every cluster has that was known at the start, but
// for those that took too long.
func (c *Controller) HasSynced() bool { return c.synced.Load() }

// Awaited names the clusters for which the first call of the handler waits.
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

// Clusters lists the remote clusters in the order of their IDs.
func (c *Controller) Clusters() []Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Cluster, 0, len(c.clusters))
	for _, id := range slices.Sorted(maps.Keys(c.clusters)) {
		cl := c.clusters[id]
		list = append(list, Cluster{id, cl.secret.Namespace + "/" + cl.secret.Name, cl.status()})
	}
	return list
}

// Lacks reports whether a Secret names that cluster, and it has not synced.
func (c *Controller) Lacks(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.clusters[id]
	return cl != nil && cl.status() != Synced
}

// Source returns what reads a cluster and is in force; nil if nothing is.
func (c *Controller) Source(id string) config.Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.clusters[id]
	if cl == nil || cl.status() != Synced {
		return nil
	}
	return cl.current.source
}

// Kubeconfig returns the kubeconfig that is in use for a cluster, or else the one that is tried; nil if there is no
// such cluster. It is not to be modified.
func (c *Controller) Kubeconfig(id string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.clusters[id]
	if cl == nil {
		return nil
	}
	return cmp.Or(cl.current, cl.next).kubeconfig
}

// Findings returns what is wrong at present. The caller must not modify it.
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

// report brings the findings up to date, and logs what is new and what is gone.
func (c *Controller) report() {
	now := slices.Clone(c.refused)
	for _, cl := range c.clusters {
		now = append(now, cl.findings(c.opts.Timeout.String())...)
	}
	slices.SortFunc(now, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
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
		list = append(list, diag.Diagnostic{
			Severity: severity, Code: code, Object: cl.secret.String(), Field: "data." + cl.id, Message: "cluster " + cl.id + message, Fix: fix,
		})
	}
	if l := cl.current; l != nil && l.problem != "" {
		add(diag.Warning, "ClusterClosed", " is read no longer: "+l.problem+"; what it had stays in force", "see that its API server answers; it is tried again")
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
		add(diag.Warning, "ClusterTimeout", " has not synced within "+timeout+kept, "see that its API server can be reached and lets the kubeconfig's user list and watch")
	}
	return list
}
