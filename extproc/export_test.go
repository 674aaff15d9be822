package extproc

// SelfSignedForTest makes certificates for tests outside of the package.
var SelfSignedForTest = selfSigned
