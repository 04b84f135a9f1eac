package rotation

import "time"

// Renewal returns when a certificate is renewed that is valid between two times: after half of its life, and up to 80 %
// of it. jitter, from 0 to 1, spreads renewals of certificates that were issued together.
func Renewal(notBefore, notAfter time.Time, jitter float64) time.Time {
	life := notAfter.Sub(notBefore)
	return notBefore.Add(life/2 + time.Duration(jitter*0.3*float64(life)))
}
