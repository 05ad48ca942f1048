//! What every suite shares: the backends under test.
