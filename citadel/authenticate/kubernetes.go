package authenticate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Cluster provides the issuer, the keys and the reviews of a Kubernetes cluster's tokens.
type Cluster interface {
	// Issuer returns the issuer of the cluster's tokens. It is an error while that is unknown.
	Issuer(ctx context.Context) (string, error)
	// Key returns the public key of an ID, nil if there is none. It is an error while the cluster's keys are unknown.
	Key(ctx context.Context, id string) (*jose.JSONWebKey, error)
	// Review sends a TokenReview to the API server. An error means that it did not answer.
	Review(ctx context.Context, token string, audiences []string) (Review, error)
}

// Clusters finds the clusters whose tokens are accepted.
type Clusters interface {
	// Get returns the cluster with an ID, and reports whether it exists. The error says why that is unknown, or why its
	// API server cannot be reached; a later attempt may succeed.
	Get(id string) (c Cluster, known bool, err error)
}

// Pods finds the pods that tokens are bound to.
type Pods interface {
	// Pod returns a pod of the cluster with an ID. It returns the zero Pod if there is no such pod, and
	// false while pods are not known.
	Pod(cluster, namespace, name string) (pod identity.Pod, known bool)
}

// Review is an API server's answer to a TokenReview.
type Review struct {
	Authenticated bool
	Username      string
	Audiences     []string
	Pod, PodUID   string
	Node          string
}

// KubernetesOptions are the options of a Kubernetes.
type KubernetesOptions struct {
	TrustDomains TrustDomains
	Audiences    []string // accepted audiences, TOKEN_AUDIENCES; a token must have one of them
	Clusters     Clusters
	Pods         Pods
	// ClusterID is the ID of the server's own cluster, which is assumed for callers that name none.
	ClusterID string
	// ClusterAliases maps names that callers use for clusters to the IDs of these clusters.
	ClusterAliases map[string]string

	Logger *slog.Logger
	Limits limits.Limits // optional; the zero value stands for the default limits
}

// Kubernetes authenticates callers by tokens of service accounts. It verifies a token with the keys of its cluster, and
// compares the pod that the token is bound to with the pod that exists. If the key or the pod is unknown, it asks the
// API server. For tokens that it verified itself, it asks the API server now and then in the background whether they
// were revoked. Safe for concurrent use.
type Kubernetes struct {
	o        KubernetesOptions
	accepted cache[identity.Peer]
	refused  cache[error]

	rechecked cache[struct{}] // verified tokens that the API server accepted, or is being asked about
	revoked   cache[error]    // verified tokens that the API server refused, with its reason

	mu     sync.Mutex
	bounds map[string]*bounds // keyed by cluster ID
}

// bounds limit the reviews of one cluster, so that an API server that does not answer delays no caller of another
// cluster.
type bounds struct {
	reviewing  *quota.Slots[identity.Holder] // keyed by the account of a verified token, or by the caller's address
	rechecking *quota.Slots[identity.Holder] // keyed by account
	failures   *rate.Limiter                 // failed reviews of tokens whose signature was not verified
}

// boundsOf returns the bounds of a cluster.
func (k *Kubernetes) boundsOf(cluster string) *bounds {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.bounds[cluster]
	if b == nil {
		l := k.o.Limits
		b = &bounds{
			quota.NewSlots[identity.Holder](l.TokenReviews, quota.Share(l.TokenReviews)),
			quota.NewSlots[identity.Holder](l.TokenRechecks, quota.Share(l.TokenRechecks)),
			rate.NewLimiter(rate.Limit(l.TokenFailures), l.TokenReviews),
		}
		k.bounds[cluster] = b
	}
	return b
}

// reviewKey identifies a reviewed token by its cluster and SHA-256 (see keyOfReview). unseen is true if the token's pod
// was not among the known pods. So a cached answer is dropped when its pod is deleted.
type reviewKey struct {
	cluster string
	token   [sha256.Size]byte
	unseen  bool
}

// How long the answer to a review is cached.
const (
	acceptedFor    = 5 * time.Minute  // upper bound of the time that a revoked token is still accepted
	acceptedUnseen = 10 * time.Second // the same if the token's pod is not among the known pods: it appears soon, or it was deleted
	refusedFor     = 10 * time.Second

	recheckAfter = 5 * time.Minute
	revokedFor   = 25 * time.Hour // no token is valid longer by default
)

// NewKubernetes returns a Kubernetes.
func NewKubernetes(o KubernetesOptions) *Kubernetes {
	if o.Limits == (limits.Limits{}) {
		o.Limits = limits.Default()
	}
	kept := o.Limits.TokensKept
	return &Kubernetes{
		o:        o,
		accepted: newCache[identity.Peer](kept, acceptedFor),
		refused:  newCache[error](kept, refusedFor),

		rechecked: newCache[struct{}](kept, recheckAfter),
		revoked:   newCache[error](kept, revokedFor),
		bounds:    map[string]*bounds{},
	}
}

// Authenticate returns the service account of a token, and the pod that it is bound to.
func (k *Kubernetes) Authenticate(ctx context.Context, r Request) (identity.Peer, error) {
	t, err := parseToken(r.Token, k.o.Audiences, time.Now())
	if err != nil {
		return identity.Peer{}, err
	}
	namespace, name, err := account(t.claims.Subject)
	if err != nil {
		return identity.Peer{}, err
	}
	id := cmp.Or(k.o.ClusterAliases[r.Cluster], r.Cluster, k.o.ClusterID)
	c, known, err := k.o.Clusters.Get(id)
	switch {
	case err != nil:
		return identity.Peer{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case !known:
		return identity.Peer{}, fmt.Errorf("cluster %.200q is not known", r.Cluster)
	}
	if issuer, err := c.Issuer(ctx); err == nil && issuer != t.claims.Issuer {
		return identity.Peer{}, fmt.Errorf("the token's issuer %.200q is not the cluster's", t.claims.Issuer)
	}
	p := identity.Peer{
		ID:    identity.ID{TrustDomain: k.o.TrustDomains.TrustDomain(), Namespace: namespace, ServiceAccount: name},
		Proof: identity.Token,
		Bound: identity.Bound{
			Cluster: id, Pod: t.claims.Kubernetes.Pod.Name, PodUID: t.claims.Kubernetes.Pod.UID, Node: t.claims.Kubernetes.Node.Name,
		},
		Expires: t.claims.Expiry.Time(),
	}
	key, unverified := c.Key(ctx, t.keyID())
	if unverified == nil && (key == nil || !t.verify(key)) {
		return identity.Peer{}, errors.New("the token's signature is wrong")
	}
	if unverified != nil || p.Bound.Pod == "" {
		return k.review(ctx, c, p, r, unverified)
	}
	pod, ok := k.o.Pods.Pod(id, namespace, p.Bound.Pod)
	switch {
	case !ok, pod == identity.Pod{}:
		return k.review(ctx, c, p, r, nil)
	case pod.UID != p.Bound.PodUID || pod.ServiceAccount != name:
		return identity.Peer{}, errors.New("the token's pod is gone")
	}
	p.Bound.Node = pod.Node
	rechecked := keyOfReview(p, r.Token, nil)
	err, revoked := k.revoked.get(rechecked)
	k.recheck(ctx, c, p, r.Token, rechecked)
	if revoked {
		return identity.Peer{}, err
	}
	return p, nil
}

// keyOfReview returns the cache key of a token. A verified token is identified by its signed part, because anyone can
// turn an ECDSA signature into another valid one without the private key.
func keyOfReview(p identity.Peer, text string, unverified error) reviewKey {
	if unverified == nil {
		text = signedPart(text)
	}
	return reviewKey{cluster: p.Bound.Cluster, token: sha256.Sum256([]byte(text))}
}

// recheck asks the API server in the background whether a verified token was revoked, unless it asked recently. It does
// not wait for the answer: a token whose account or key was revoked is refused the next time. An API server that fails
// to look up the account or the pod also answers that it does not accept the token, so a refused token is checked again
// soon.
func (k *Kubernetes) recheck(ctx context.Context, c Cluster, p identity.Peer, text string, key reviewKey) {
	b := k.boundsOf(key.cluster)
	if _, recent := k.rechecked.get(key); recent {
		return
	}
	leave := b.rechecking.Try(identity.Holder{ID: p.ID})
	if leave == nil {
		return
	}
	k.rechecked.add(key, struct{}{})
	ctx = context.WithoutCancel(ctx) // the check goes on when the caller leaves
	safe.Go(k.o.Logger, "token review", func() {
		defer leave()
		ctx, cancel := context.WithTimeout(ctx, k.o.Limits.TokenReview)
		defer cancel()
		v, err := c.Review(ctx, text, k.o.Audiences)
		if err != nil {
			k.rechecked.remove(key)
			return
		}
		if err := k.judge(v, &p); err == nil {
			k.revoked.remove(key)
		} else {
			k.rechecked.addFor(key, struct{}{}, refusedFor)
			k.revoked.add(key, err)
			k.o.Logger.Warn("API server refused a verified token: it is no longer accepted",
				"account", p.ID.String(), "pod", p.Bound.Pod, "err", err)
		}
	})
}

// review sends a TokenReview for a token that cannot be checked locally: its signature could not be verified, or it is
// bound to no pod or to one that is not known yet. unverified says why the signature could not be verified; it is nil
// if it was. An accepted token is cached. If many tokens wait, their accounts take turns.
func (k *Kubernetes) review(ctx context.Context, c Cluster, p identity.Peer, r Request, unverified error) (identity.Peer, error) {
	key, keep := keyOfReview(p, r.Token, unverified), acceptedFor
	if p.Bound.Pod != "" {
		if pod, known := k.o.Pods.Pod(p.Bound.Cluster, p.ID.Namespace, p.Bound.Pod); known && pod.UID != p.Bound.PodUID {
			key.unseen, keep = true, acceptedUnseen
		}
	}
	if had, ok := k.accepted.get(key); ok {
		return had, nil
	}
	if err, ok := k.refused.get(key); ok {
		return identity.Peer{}, err
	}
	b := k.boundsOf(key.cluster)
	if unverified != nil && b.failures.Tokens() < 1 {
		return identity.Peer{}, fmt.Errorf("%w: %w, and too many tokens were refused of late", ErrUnavailable, unverified)
	}
	ctx, cancel := context.WithTimeout(ctx, k.o.Limits.TokenReview)
	defer cancel()
	holder := identity.Holder{ID: p.ID}
	if unverified != nil { // The account in the token may be forged.
		holder = identity.Holder{Address: r.Address.Addr().Unmap()}
	}
	leave, err := b.reviewing.Take(ctx, holder)
	if err != nil {
		return identity.Peer{}, fmt.Errorf("%w: too many tokens wait for a review", ErrUnavailable)
	}
	defer leave()
	v, err := c.Review(ctx, r.Token, k.o.Audiences)
	if err != nil {
		if unverified != nil { // forged tokens of an unreachable cluster must not use up the reviews of other callers
			b.failures.Allow()
		}
		return identity.Peer{}, fmt.Errorf("%w: the token's review: %w", ErrUnavailable, errors.Join(err, unverified))
	}
	if err := k.judge(v, &p); err != nil {
		b.failures.Allow()
		k.refused.add(key, err)
		return identity.Peer{}, err
	}
	k.accepted.addFor(key, p, keep)
	return p, nil
}

// judge returns an error unless a review accepts a token for a peer. It sets the pod that the peer is bound to.
func (k *Kubernetes) judge(v Review, p *identity.Peer) error {
	namespace, name, err := account(v.Username)
	switch {
	case !v.Authenticated:
		return errors.New("the API server does not accept the token")
	case err != nil:
		return err
	case namespace != p.ID.Namespace || name != p.ID.ServiceAccount:
		return errors.New("the API server has another account for the token")
	case !slices.ContainsFunc(v.Audiences, func(a string) bool { return slices.Contains(k.o.Audiences, a) }):
		return errors.New("the API server does not say that the token is for this server")
	case v.PodUID != p.Bound.PodUID:
		return errors.New("the API server has another pod for the token")
	}
	p.Bound.Pod, p.Bound.PodUID = v.Pod, v.PodUID
	if v.Node != "" {
		p.Bound.Node = v.Node
	}
	return nil
}
