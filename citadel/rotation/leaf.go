package rotation

import "time"

// Renewal returns when the server renews a certificate of its own, such as its serving certificate, that is valid from
// notBefore to notAfter: between 50 and 80 percent of its lifetime. jitter, from 0 to 1, spreads the renewals of
// certificates that were issued together.
func Renewal(notBefore, notAfter time.Time, jitter float64) time.Time {
	life := notAfter.Sub(notBefore)
	return notBefore.Add(life/2 + time.Duration(jitter*0.3*float64(life)))
}
