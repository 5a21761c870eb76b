"""Results for other eyes: settings for serving engines."""
